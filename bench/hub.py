"""The hub: CPU of heartbeats, memory of connected agents, notices, a reconnect storm and cancelled streams.

    python -m tools.services postgresql -- python -m bench.hub [--agents 10000] [--cycles 30000] [--output json]

The process under test is `sentinel hub serve` with registration tokens. Agents are in two other processes, each
with its own connection. CPU is what the kernel counts for the whole hub process: gRPC, authentication, state, the
log and writing what heartbeats report.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from bench.budget import Budget, table
from bench.command_line import main
from bench.hub_agents import TIMEOUT, Command, CommandName, Result, instance_id
from bench.processes import cpu_seconds, memory, raise_file_limit
from bench.testbed import Cost, DatabaseName, Testbed, open_testbed
from sentinel.core.hub import sync as syncing
from sentinel.core.hub.sync import Assignment
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.hub.store import SqlHubStore
from sentinel.hub import instance_changes
from sentinel.hub.routes import ROOT
from sentinel.hub.schemas import VersionDocument
from sentinel.ports.hub_store import HubTransaction
from sentinel.runtime.bearer_tokens import digest_of
from tests.support.processes.hub import HubProcess

AGENTS = 1_000
CYCLES = 10_000
HEARTBEAT_LIMIT = 1_000.0
"""Microseconds of CPU."""
KILOBYTES_LIMIT = 100.0
NOTIFIED = 9_000
NOTICE_LIMIT = 2.5
"""Seconds until as many agents are notified as `NOTIFIED` says."""
GROWTH_LIMIT = 0.1
"""Kilobytes of each cycle: a megabyte in all. A leaked stream has twenty kilobytes."""

_ROUNDS = 3
_PROCESSES = 2
_AGENT_TOKEN = "agents-of-the-benchmark"  # noqa: S105
_USER_TOKEN = "user-of-the-benchmark"  # noqa: S105
_CONFIG = "edge"
_TEXT = """
system {
}
listeners {
    listener "http" {
        address "0.0.0.0:8080"
        protocol "http"
    }
}
"""
_CONCURRENT = 16
_WARM_UP = 50
"""Agents, or cycles: what is allocated once is not counted."""


class NoticeFigures(msgspec.Struct, frozen=True):
    """One notice to all agents."""

    microseconds: float
    """CPU of the hub for each agent."""
    seconds: float
    """From the commit until the last agent has it."""


class StormFigures(msgspec.Struct, frozen=True):
    """All agents coming back at the same time."""

    microseconds: float
    """CPU of the hub for each agent that registers and subscribes."""
    seconds: float
    """Until the last one has its stream."""
    refused: int
    """Calls that agents had to repeat."""
    lost: int
    """Agents without a stream in the end."""


class HubFigures(msgspec.Struct, frozen=True):
    """All measurements."""

    agents: int
    heartbeats: Mapping[DatabaseName, Cost]
    """The cheapest of several rounds, writing what they report included."""
    kilobytes: float
    """Resident memory of an agent with an open stream."""
    assigning: NoticeFigures
    """A request of a user for each instance."""
    notice: NoticeFigures
    """One transaction of another process for all instances, as that of another hub."""
    storm: StormFigures
    cycles: int
    growth_kilobytes: float
    """Resident memory that remains of a stream that was opened and cancelled."""


async def measure(*, agents: int = AGENTS, cycles: int = CYCLES) -> HubFigures:
    """Measure a hub on each database."""
    raise_file_limit()
    async with open_hub(DatabaseName.SQLITE) as hub:
        async with hub.fleet(_WARM_UP, first=agents) as few:
            await few.perform(CommandName.CONNECT)
            await few.perform(CommandName.CYCLE, times=_WARM_UP)
        empty = memory(hub.process.pid).resident
        async with hub.fleet(agents) as fleet:
            await fleet.perform(CommandName.CONNECT)
            kilobytes = (memory(hub.process.pid).resident - empty) * 1024 * 1.024 / agents
            on_sqlite = [await hub.heartbeats(fleet) for _ in range(_ROUNDS)]
            assigning = await hub.assign_by_requests(fleet)
            storm = await hub.storm(fleet)
            growth = await hub.growth(fleet, cycles)
    async with open_hub(DatabaseName.POSTGRESQL) as hub, hub.fleet(agents) as fleet:
        await fleet.perform(CommandName.CONNECT)
        on_postgresql = [await hub.heartbeats(fleet) for _ in range(_ROUNDS)]
        notice = await hub.assign_from_outside(fleet)
    return HubFigures(
        agents=agents,
        heartbeats={
            DatabaseName.SQLITE: min(on_sqlite, key=lambda cost: cost.server),
            DatabaseName.POSTGRESQL: min(on_postgresql, key=lambda cost: cost.server),
        },
        kilobytes=kilobytes,
        assigning=assigning,
        notice=notice,
        storm=storm,
        cycles=cycles,
        growth_kilobytes=growth,
    )


def budgets(figures: HubFigures) -> list[Budget]:
    """Return the budgets of the hub."""
    fleet = f"a hub with {figures.agents:,} agents"
    return [
        *(
            Budget(f"{fleet}: CPU per heartbeat on {database}", cost.server, "µs", HEARTBEAT_LIMIT)
            for database, cost in figures.heartbeats.items()
        ),
        Budget(f"{fleet}: memory of each", figures.kilobytes, "kB", KILOBYTES_LIMIT),
        Budget(
            f"{fleet}: CPU of a notice to {NOTIFIED:,} of them",
            figures.notice.microseconds * NOTIFIED / 1e6,
            "s",
            NOTICE_LIMIT,
        ),
        Budget(f"{fleet}: lost when all reconnect at once", figures.storm.lost, "", 0),
        Budget(
            f"{fleet}: memory that a cancelled stream leaves, of {figures.cycles:,}",
            figures.growth_kilobytes,
            "kB",
            GROWTH_LIMIT,
        ),
    ]


def section(figures: HubFigures) -> list[str]:
    """Return the section of the performance page."""
    of_sqlite, of_postgresql = (figures.heartbeats[name] for name in DatabaseName)
    notice, assigning, storm = figures.notice, figures.assigning, figures.storm
    return [
        "\n## The hub\n",
        f"{figures.agents:,} agents, each with a connection and an open stream. A heartbeat has metrics, and",
        "includes its share of writing them. The notice is that of one transaction, by another process on",
        "PostgreSQL; the assignments are requests, one for each instance, on SQLite. The budget of a notice is in",
        "CPU, because the hub sends it in one thread.\n",
        *table(
            ("what", "CPU per agent", "until the last agent has it"),
            (
                ("heartbeat on SQLite", of_sqlite, ""),
                ("heartbeat on PostgreSQL", of_postgresql, ""),
                ("notice", f"{notice.microseconds:.0f} µs", f"{notice.seconds:.1f} s"),
                ("assign by a request", f"{assigning.microseconds:.0f} µs", f"{assigning.seconds:.1f} s"),
                (
                    f"reconnect, all at once; {storm.refused:,} calls repeated",
                    f"{storm.microseconds:.0f} µs",
                    f"{storm.seconds:.1f} s",
                ),
            ),
        ),
    ]


class AgentProcesses:
    """All agents, in several processes."""

    def __init__(self, address: str, count: int, *, first: int = 0) -> None:
        self.first = first
        self.count = count
        self._address = address
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        share, rest = divmod(self.count, _PROCESSES)
        first = self.first
        for number in range(_PROCESSES):
            count = share + (number < rest)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "bench.hub_agents", self._address, _AGENT_TOKEN, str(first), str(count)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._processes.append(process)
            first += count
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                async with asyncio.timeout(TIMEOUT.total_seconds()):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()

    async def perform(self, name: CommandName, *, times: int = _PROCESSES) -> Result:
        """Let all agents do it. `times` is for all of them together."""
        line = msgspec.json.encode(Command(name, times // _PROCESSES)) + b"\n"
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            results = await asyncio.gather(*(_call(process, line) for process in self._processes))
        return Result(
            done=sum(each.done for each in results),
            refused=sum(each.refused for each in results),
            finished=max(each.finished for each in results),
        )


async def _call(process: asyncio.subprocess.Process, line: bytes) -> Result:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    return msgspec.json.decode(await process.stdout.readline(), type=Result)


class HubUnderTest:
    """A hub whose CPU is counted."""

    def __init__(
        self, process: HubProcess, address: str, session: aiohttp.ClientSession, testbed: Testbed
    ) -> None:
        self.process = process
        self._address = address
        self._session = session
        self._testbed = testbed

    async def send(self, method: str, path: str, body: object = None) -> Any:
        """Send a request of a user, which has to succeed. Return the document."""
        async with self._session.request(method, f"{ROOT}/{path}", json=body) as response:
            assert response.status < 300, await response.text()
            return msgspec.json.decode(await response.read())

    async def until_streams(self, count: int) -> None:
        """Wait until so many agents have an open stream."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while True:
                async with self._session.get("/metrics") as response:
                    if f"\nhub_streams {count:.1f}\n" in await response.text():
                        return
                await asyncio.sleep(0.5)

    def fleet(self, count: int, *, first: int = 0) -> AgentProcesses:
        return AgentProcesses(self._address, count, first=first)

    async def heartbeats(self, fleet: AgentProcesses) -> Cost:
        """Let each agent send a heartbeat, and wait until all of them are written."""
        before, started = await self._testbed.database_cpu_seconds(), cpu_seconds(self.process.pid)
        since = len(self.process.lines)
        result = await fleet.perform(CommandName.HEARTBEAT)
        assert result.done == fleet.count
        unwritten = fleet.count
        while unwritten > 0:
            line = await self.process.until_event("heartbeats.flushed", since=since)
            since = self.process.lines.index(line, since) + 1
            unwritten -= line["instances"]
        server = cpu_seconds(self.process.pid) - started
        database = sum(
            spent - before.get(pid, 0.0) for pid, spent in (await self._testbed.database_cpu_seconds()).items()
        )
        return Cost(server / fleet.count * 1e6, database / fleet.count * 1e6)

    async def assign_by_requests(self, fleet: AgentProcesses) -> NoticeFigures:
        """Assign a version to each instance, by a request for each."""
        await self._save_version()
        waiting = iter(range(fleet.first, fleet.first + fleet.count))

        async def work() -> None:
            for number in waiting:
                path = f"{ROOT}/instances/{instance_id(number)}/assignment"
                async with self._session.put(path, json={"config_id": _CONFIG, "version": 1}) as response:
                    assert response.status == 200, await response.text()

        notified = asyncio.create_task(fleet.perform(CommandName.AWAIT_NOTICE))
        before, started = cpu_seconds(self.process.pid), time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONCURRENT):
                tasks.create_task(work())
        return self._noticed(await notified, before, started)

    async def assign_from_outside(self, fleet: AgentProcesses) -> NoticeFigures:
        """Assign a version to all instances in one transaction, as another hub does for a deployment."""
        content_hash = await self._save_version()
        now = datetime.now(UTC)
        assignment = Assignment(VersionName(_CONFIG, 1), content_hash, now)

        def work(transaction: HubTransaction) -> None:
            for number in range(fleet.first, fleet.first + fleet.count):
                instance = transaction.instance(instance_id(number))
                assert instance is not None
                sync = syncing.assign(instance.sync, assignment, now)
                assigned = msgspec.structs.replace(instance, sync=sync)
                instance_changes.save(transaction, assigned, (), now)

        database = engine.database(self._testbed.url, migrate=False, history=HISTORY)
        await database.open()
        try:
            notified = asyncio.create_task(fleet.perform(CommandName.AWAIT_NOTICE))
            before = cpu_seconds(self.process.pid)
            await SqlHubStore(database).transact(work)
            # The hub has just learned of the commit.
            started = time.monotonic()
            return self._noticed(await notified, before, started)
        finally:
            await database.close()

    async def storm(self, fleet: AgentProcesses) -> StormFigures:
        """Let all agents reconnect at the same time."""
        before, started = cpu_seconds(self.process.pid), time.monotonic()
        result = await fleet.perform(CommandName.RECONNECT)
        spent = cpu_seconds(self.process.pid) - before
        return StormFigures(
            microseconds=spent / fleet.count * 1e6,
            seconds=result.finished - started,
            refused=result.refused,
            lost=fleet.count - result.done,
        )

    async def growth(self, fleet: AgentProcesses, cycles: int) -> float:
        """Return the memory that a cancelled stream leaves."""
        # The first ones end the open streams of all agents.
        await fleet.perform(CommandName.CYCLE, times=fleet.count)
        before = memory(self.process.pid).resident
        result = await fleet.perform(CommandName.CYCLE, times=cycles)
        assert result.done == cycles
        return max(0.0, memory(self.process.pid).resident - before) * 1024 * 1.024 / cycles

    def _noticed(self, result: Result, before: float, started: float) -> NoticeFigures:
        spent = cpu_seconds(self.process.pid) - before
        return NoticeFigures(spent / result.done * 1e6, result.finished - started)

    async def _save_version(self) -> str:
        """Save the only version of the configuration. Returns its hash."""
        body = {"id": _CONFIG, "content": _TEXT, "change_summary": "the first version"}
        async with self._session.post(f"{ROOT}/configs", json=body) as response:
            assert response.status == 201, await response.text()
            return msgspec.json.decode(await response.read(), type=VersionDocument).hash


@asynccontextmanager
async def open_hub(name: DatabaseName) -> AsyncIterator[HubUnderTest]:
    """Run a hub on a new database."""
    async with AsyncExitStack() as stack:
        testbed = await stack.enter_async_context(open_testbed(name))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-bench-"))
        tokens = Path(directory) / "tokens.yaml"
        tokens.write_bytes(msgspec.json.encode({"tokens": _tokens()}))
        # What is logged at this level is only that heartbeats were written, every few seconds.
        process = await stack.enter_async_context(
            HubProcess(testbed.url, f"--tokens-file={tokens}", "--log-level=debug")
        )
        headers = {"Authorization": f"Bearer {_USER_TOKEN}"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT.total_seconds())
        session = await stack.enter_async_context(
            aiohttp.ClientSession(await process.url(), headers=headers, timeout=timeout)
        )
        yield HubUnderTest(process, await process.grpc_address(), session, testbed)
        assert await process.stop() == 0


def _tokens() -> Sequence[Mapping[str, str]]:
    return [
        {"name": "agents", "role": "agent", "sha256": digest_of(_AGENT_TOKEN).hex()},
        {"name": "user", "role": "operator", "sha256": digest_of(_USER_TOKEN).hex()},
    ]


if __name__ == "__main__":
    sys.exit(main("hub", __doc__, measure, budgets, section, agents=AGENTS, cycles=CYCLES))

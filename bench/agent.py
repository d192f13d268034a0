"""An agent beside the small proxy: memory and CPU at rest, and from an assignment to the version that runs.

    python -m bench.agent [--heartbeats N] [--versions N] [--output json]

Hub, agent and proxy are processes of their own. At rest, the agent scrapes the proxy, checks its health and sends
a heartbeat each second. CPU is what the kernel counts for the whole agent. No command tests the versions, because
its process would be what is measured. An assignment begins when the user sends it, and ends when the hub has the
heartbeat that says so: the version was fetched and written, the proxy has loaded it and is healthy.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.budget import Budget, table
from bench.command_line import main
from bench.processes import Memory, cpu_seconds, memory
from tests.support.processes.agent import AgentProcess, Host
from tests.support.processes.hub import RunningHub, serving

HEARTBEATS = 30
VERSIONS = 20
RESIDENT_LIMIT = 64.0
"""MiB."""
HEARTBEAT_LIMIT = 15.0
"""Milliseconds of CPU."""
APPLY_LIMIT = 60.0
"""Milliseconds of CPU."""
_HEALTH_INTERVAL = "0s"
"""Before the health is checked. It would only be waited for."""


class AgentFigures(msgspec.Struct, frozen=True):
    """All measurements."""

    started: Memory
    """After the first heartbeats."""
    worked: Memory
    """After all versions."""
    heartbeat_milliseconds: float
    """CPU of a heartbeat, with the scrape and the health check."""
    apply_milliseconds: float
    """CPU of an assigned version."""
    seconds: Sequence[float]
    """From an assignment until the hub knows that the version runs, ascending."""

    @property
    def median(self) -> float:
        return self.seconds[len(self.seconds) // 2]


async def measure(*, heartbeats: int = HEARTBEATS, versions: int = VERSIONS) -> AgentFigures:
    """Measure one agent."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        database = f"sqlite:///{folder / 'hub.db'}"
        async with serving(database, "--set=heartbeat_interval=1s") as hub:
            host = Host(folder / "host", hub=hub.address)
            host.settings["proxy"]["health"]["interval"] = _HEALTH_INTERVAL
            await hub.save(*(host.content(f"version-{number}") for number in range(versions + 1)))
            async with host.serving(), host.agent() as agent:
                await agent.until_event("hub.connected")
                await _assign(hub, 1)
                await _rest(agent, 3)
                started, before = memory(agent.pid), cpu_seconds(agent.pid)
                await _rest(agent, heartbeats)
                heartbeat = (cpu_seconds(agent.pid) - before) / heartbeats
                before, counted = cpu_seconds(agent.pid), await _heartbeats(agent)
                seconds = [await _assign(hub, number) for number in range(2, versions + 2)]
                spent, beats = cpu_seconds(agent.pid) - before, await _heartbeats(agent) - counted
                return AgentFigures(
                    started=started,
                    worked=memory(agent.pid),
                    heartbeat_milliseconds=heartbeat * 1000,
                    apply_milliseconds=(spent - beats * heartbeat) / versions * 1000,
                    seconds=sorted(seconds),
                )


def budgets(figures: AgentFigures) -> list[Budget]:
    return [
        Budget("agent: resident memory after applying versions", figures.worked.resident, "MiB", RESIDENT_LIMIT),
        Budget("agent: CPU of a heartbeat at rest", figures.heartbeat_milliseconds, "ms", HEARTBEAT_LIMIT),
        Budget(
            "agent: CPU of a version, from assignment to applied", figures.apply_milliseconds, "ms", APPLY_LIMIT
        ),
    ]


def section(figures: AgentFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## The agent\n",
        "One agent beside the small proxy, and a hub on SQLite. Memory is resident, and the proportional share in",
        "brackets. A heartbeat includes the scrape of the proxy's metrics and a health check; by default there is",
        "one each 30 seconds. A version is fetched, written, loaded by the proxy, found healthy and reported.\n",
        *table(
            (
                "memory at rest",
                "memory after versions",
                "CPU of a heartbeat",
                "CPU of a version",
                "to applied, median",
            ),
            [
                (
                    figures.started,
                    figures.worked,
                    f"{figures.heartbeat_milliseconds:.1f} ms",
                    f"{figures.apply_milliseconds:.0f} ms",
                    f"{figures.median * 1000:.0f} ms",
                )
            ],
        ),
    ]


async def _assign(hub: RunningHub, version: int) -> float:
    """Assign a version, and return how long it took until it ran."""
    began = time.monotonic()
    await hub.assign("edge-1", version)
    await hub.until_instance("edge-1", assigned=f"api@{version}", in_sync=True)
    return time.monotonic() - began


async def _heartbeats(agent: AgentProcess) -> float:
    return await agent.agent_metric("heartbeats_total", outcome="ok")


async def _rest(agent: AgentProcess, heartbeats: int) -> None:
    """Wait for so many heartbeats."""
    target = await _heartbeats(agent) + heartbeats
    while await _heartbeats(agent) < target:  # noqa: ASYNC110  # of another process
        await asyncio.sleep(1)


if __name__ == "__main__":
    sys.exit(main("agent", __doc__, measure, budgets, section, heartbeats=HEARTBEATS, versions=VERSIONS))

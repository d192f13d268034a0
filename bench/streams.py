"""Streams of the fleet API: memory and CPU of idle ones, and the time from a commit to the client.

    python -m bench.streams [--output json]

The process under test is `sentinel api`, on SQLite and on PostgreSQL. A thousand clients follow one list. Idle
ones select by a label that no change has, as the shards of a fleet do; one more follows what changes. The clients
are in this process, and their memory is not counted.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

import aiohttp
import msgspec

from bench.budget import Budget, table
from bench.command_line import main
from bench.processes import cpu_seconds, memory
from bench.testbed import DatabaseName, Testbed, open_testbed
from tests.support.fleet.http_client import ROOT
from tests.support.processes.service import ApiProcess

READERS = 999
"""Idle ones. A server admits a thousand streams."""
CHANGES = 200
IDLE_SECONDS = 30
"""Three comments to each reader."""
CPU_LIMIT = 10.0
KILOBYTES_LIMIT = 30.0
LATENCY_LIMIT = 100.0

_KINDS = ({"plural": "clusters", "kind": "Cluster", "required_adapters": ["validation"]},)


class StreamFigures(msgspec.Struct, frozen=True):
    """The measurements on one database."""

    database: DatabaseName
    kilobytes: float
    """Resident memory of the server for each idle stream."""
    idle_percent: float
    """Of one core, for all idle streams."""
    median_milliseconds: float
    """From the response to a change until its event has arrived."""
    p99_milliseconds: float
    from_request_milliseconds: float
    """The 99th percentile from the begin of the request that makes the change, as a bound for the time above."""
    last_milliseconds: float
    """From the response to a change that matters to all clients until the last one has its event; the median."""


async def measure() -> Sequence[StreamFigures]:
    """Measure both databases."""
    figures = []
    for name in DatabaseName:
        with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as directory:
            async with open_testbed(name) as testbed:
                figures.append(await _measure(testbed, Path(directory)))
    return figures


def budgets(figures: Sequence[StreamFigures]) -> list[Budget]:
    """Return the budgets of streams."""
    return [
        budget
        for one in figures
        for budget in (
            Budget(f"{READERS + 1:,} idle streams on {one.database}: CPU", one.idle_percent, "%", CPU_LIMIT),
            Budget(f"an idle stream on {one.database}: memory", one.kilobytes, "kB", KILOBYTES_LIMIT),
            Budget(
                f"from a commit on {one.database} to the client, 99th percentile of {CHANGES}",
                one.p99_milliseconds,
                "ms",
                LATENCY_LIMIT,
            ),
        )
    ]


def section(figures: Sequence[StreamFigures]) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## Streams\n",
        f"One client follows {CHANGES} changes beside {READERS} that they do not matter to. The time begins with",
        "the response to the change, or with its request. The last column is for changes that matter to all of",
        "them, until the last one has received its event.\n",
        *table(
            ("database", "median", "99th percentile", "from the request", "to a thousand clients"),
            (
                (
                    one.database,
                    f"{one.median_milliseconds:.1f} ms",
                    f"{one.p99_milliseconds:.1f} ms",
                    f"{one.from_request_milliseconds:.1f} ms",
                    f"{one.last_milliseconds:.0f} ms",
                )
                for one in figures
            ),
        ),
    ]


async def _measure(testbed: Testbed, directory: Path) -> StreamFigures:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiProcess(testbed.url, kinds=_KINDS, directory=directory))
        url = await server.url()
        session = await stack.enter_async_context(aiohttp.ClientSession(url))
        path = await _create(session, "followed")
        follower = await stack.enter_async_context(_following(url))
        await _change(session, path, 0)
        await follower.next()
        empty = memory(server.pid).resident
        idle = [await stack.enter_async_context(_following(url, labels="shard=other")) for _ in range(READERS)]
        kilobytes = (memory(server.pid).resident - empty) * 1024 * 1.024 / READERS
        idle_percent = await _idle_percent(server)
        after_response, after_request = [], []
        for number in range(CHANGES):
            began, committed = await _change(session, path, number + 1)
            arrived = await follower.next()
            after_response.append(max(0.0, arrived - committed) * 1000)
            after_request.append((arrived - began) * 1000)
        last = [await _change_for_all(session, path, [follower, *idle], number) for number in range(5)]
    return StreamFigures(
        database=testbed.name,
        kilobytes=kilobytes,
        idle_percent=idle_percent,
        median_milliseconds=quantiles(after_response, n=100)[49],
        p99_milliseconds=quantiles(after_response, n=100)[98],
        from_request_milliseconds=quantiles(after_request, n=100)[98],
        last_milliseconds=sorted(last)[2] * 1000,
    )


class _Follower:
    """A client of a stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> float:
        """Return when the next event has arrived."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            await self._reader.readuntil(b"\ndata: ")
        return loop.time()


@asynccontextmanager
async def _following(url: str, *, labels: str = "") -> AsyncIterator[_Follower]:
    """Open a stream, by a plain socket: a client library would take more CPU than the server."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    query = f"watch=true&fields=generation&labels={labels}"
    writer.write(f"GET {ROOT}/clusters?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    try:
        async with asyncio.timeout(60):
            await reader.readuntil(b"resource.synced")
            await reader.readuntil(b"\n\n")
        yield _Follower(reader)
    finally:
        writer.close()


async def _create(session: aiohttp.ClientSession, name: str) -> str:
    async with session.post(f"{ROOT}/clusters", json={"name": name}) as response:
        assert response.status == 201, await response.text()
        return response.headers["Location"]


async def _change(session: aiohttp.ClientSession, path: str, number: int, **labels: str) -> tuple[float, float]:
    """Change a resource. Return when the request began and when its response arrived."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with session.patch(path, json={"spec": {"number": number}, "labels": labels}) as response:
        assert response.status == 200, await response.text()
    return began, loop.time()


async def _change_for_all(
    session: aiohttp.ClientSession, path: str, followers: Sequence[_Follower], number: int
) -> float:
    """Change a label, which matters to every client. Return the seconds until the last of them knows."""
    _, committed = await _change(session, path, -number, shard="other" if number % 2 else "mine")
    arrived = await asyncio.gather(*(follower.next() for follower in followers))
    return max(arrived) - committed


async def _idle_percent(server: ApiProcess) -> float:
    before = cpu_seconds(server.pid)
    await asyncio.sleep(IDLE_SECONDS)
    return (cpu_seconds(server.pid) - before) / IDLE_SECONDS * 100


if __name__ == "__main__":
    sys.exit(main("streams", __doc__, measure, budgets, section))

"""From a changed spec to its event in the queue, through the stream of the fleet API.

    python -m bench.reaction [--changes N] [--output json]

The API on SQLite, `sentinel run` and RabbitMQ are processes of their own, as in production. One change follows the
other, each on another resource. A duration begins when the client sends its PATCH, and ends when a consumer of the
queue has the event, so it includes the write itself. The pulse polls once an hour: an event that waited for a poll
would fail the benchmark.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aio_pika
import aiohttp
import msgspec
from aio_pika.abc import AbstractIncomingMessage

from bench import clusters
from bench.budget import Budget, table
from bench.command_line import main
from bench.processes import cpu_seconds
from bench.publish import URL
from tests.support.fleet.http_client import ROOT
from tests.support.processes.service import SentinelProcess

CHANGES = 200
RESOURCES = 500
P99_BUDGET = 100.0

_TIMEOUT = 60.0


class ReactionFigures(msgspec.Struct, frozen=True):
    """How long events took, in milliseconds, in ascending order."""

    milliseconds: Sequence[float]
    pulse_microseconds: float
    """CPU of the pulse per change."""
    polls: int
    """How many polls there were meanwhile."""

    def percentile(self, percent: float) -> float:
        """The duration that so many percent of the events did not exceed."""
        index = max(0, -(-len(self.milliseconds) * percent // 100) - 1)
        return self.milliseconds[int(index)]


async def measure(changes: int = CHANGES) -> ReactionFigures:
    """Change this many specs, one after the other."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arrivals = await stack.enter_async_context(_queue())
        api = await stack.enter_async_context(clusters.sqlite_api(directory, required_adapters=["validation"]))
        endpoint = await api.url()
        session = await stack.enter_async_context(
            aiohttp.ClientSession(endpoint, timeout=aiohttp.ClientTimeout(total=_TIMEOUT))
        )
        ids = await clusters.create(session, RESOURCES)
        configuration = clusters.pulse_configuration(endpoint, poll_interval="1h")
        pulse = await stack.enter_async_context(
            SentinelProcess(directory, configuration, environ=arrivals.environ)
        )
        await pulse.until_event("stream.connected")
        await arrivals.until(ids)
        before, polls = cpu_seconds(pulse.pid), await _polls(pulse)

        milliseconds = [
            await _change(session, arrivals, ids[number % len(ids)], number) * 1000 for number in range(changes)
        ]

        spent = cpu_seconds(pulse.pid) - before
        return ReactionFigures(sorted(milliseconds), spent / changes * 1e6, await _polls(pulse) - polls)


def budgets(figures: ReactionFigures) -> list[Budget]:
    """Return the budgets of the reaction to a change."""
    return [
        Budget("a changed spec to its event in the queue: p99", figures.percentile(99), "ms", P99_BUDGET),
        Budget("the same: polls that it waited for", figures.polls, "polls", 0),
    ]


def section(figures: ReactionFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## From a changed spec to its event\n",
        f"{len(figures.milliseconds)} changes, one after the other, in a fleet of {RESOURCES}: the API on SQLite,",
        "`sentinel run` following its stream, and RabbitMQ. From sending the PATCH until a consumer of the queue",
        f"has the event. The pulse spent {figures.pulse_microseconds / 1000:.2f} ms CPU for each.\n",
        *table(
            ("p50", "p90", "p99", "slowest"),
            ([f"{figures.percentile(each):.1f} ms" for each in (50, 90, 99, 100)],),
        ),
    ]


class _Arrivals:
    """A queue on an exchange of its own, and when events for each resource arrived."""

    def __init__(self, exchange: str) -> None:
        self.environ: Mapping[str, str] = {
            "BROKER_TYPE": "rabbitmq",
            "BROKER_URL": URL,
            "BROKER_EXCHANGE": exchange,
        }
        self._arrived: dict[str, asyncio.Future[float]] = {}

    def expect(self, resource_id: str) -> asyncio.Future[float]:
        """Return a future for when the next event for a resource arrives."""
        self._arrived[resource_id] = asyncio.get_running_loop().create_future()
        return self._arrived[resource_id]

    async def until(self, ids: Sequence[str]) -> None:
        """Wait until each resource has had an event."""
        async with asyncio.timeout(_TIMEOUT):
            for each in ids:
                await self._arrived.setdefault(each, asyncio.get_running_loop().create_future())

    async def received(self, message: AbstractIncomingMessage) -> None:
        now = time.monotonic()
        subject = str(msgspec.json.decode(message.body)["subject"])
        arrived = self._arrived.setdefault(subject, asyncio.get_running_loop().create_future())
        if not arrived.done():
            arrived.set_result(now)


@asynccontextmanager
async def _queue() -> AsyncIterator[_Arrivals]:
    arrivals = _Arrivals(f"bench-{uuid.uuid4().hex}")
    name = arrivals.environ["BROKER_EXCHANGE"]
    async with await aio_pika.connect(URL) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, "fanout", durable=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange)
        await queue.consume(arrivals.received, no_ack=True)
        try:
            yield arrivals
        finally:
            await channel.exchange_delete(name)


async def _change(session: aiohttp.ClientSession, arrivals: _Arrivals, resource_id: str, number: int) -> float:
    """Change a spec, and return the seconds until its event arrived."""
    arrived = arrivals.expect(resource_id)
    began = time.monotonic()
    async with session.patch(
        f"{ROOT}/clusters/{resource_id}",
        json={"spec": {"replicas": 4 + number}},
        headers={"Content-Type": "application/merge-patch+json"},
    ) as response:
        assert response.status == 200, await response.text()
    async with asyncio.timeout(_TIMEOUT):
        return await arrived - began


async def _polls(pulse: SentinelProcess) -> int:
    return int(await pulse.metric("reconcile_duration_seconds_count"))


if __name__ == "__main__":
    sys.exit(main("reaction", __doc__, measure, budgets, section, changes=CHANGES))

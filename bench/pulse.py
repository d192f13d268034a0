"""The pulse: CPU per resource and peak memory of `sentinel run`, by size of the fleet.

The process under test is `sentinel run`, with a server in another process and a real RabbitMQ. The figures are its
CPU time as the kernel counts it, over many consecutive cycles.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aio_pika
import msgspec

from bench.processes import cpu_seconds, peak_mebibytes
from bench.publish import URL
from tests.support.processes.service import SentinelProcess
from tools.services.pubsub import EMULATOR_VARIABLE

PAGE_SIZE = 500
_RESOURCES_PER_ROUND = 100_000
_ROUNDS = 8
_TIMEOUT = 300.0


class PulseFigures(msgspec.Struct, frozen=True):
    """The cost of one fleet.

    The cheapest round counts: other load on the machine only adds to a figure, and comes in bursts.
    """

    resources: int
    broker: str
    is_healthy: bool
    """Nothing is due. Otherwise every status is stale, and every resource is due and paced."""
    has_fields: bool
    """Whether the server supports `fields`. Otherwise it returns whole resources."""
    microseconds_per_resource: float
    peak_mebibytes: float


async def measure(
    resources: int, *, broker: str = "rabbitmq", is_healthy: bool = True, has_fields: bool = False
) -> PulseFigures:
    """Run a pulse over this many resources, connected to `rabbitmq` or `pubsub`."""
    updated = datetime.now(UTC) if is_healthy else datetime.now(UTC) - timedelta(hours=1)
    cycles = max(1, _RESOURCES_PER_ROUND // resources)
    async with (
        _server(resources, updated, has_cursor=has_fields) as endpoint,
        _BROKERS[broker]() as environ,
    ):
        with tempfile.TemporaryDirectory() as directory:
            config = {
                "resource_type": "clusters",
                "poll_interval": "1ms",
                "max_age_not_ready": "24h",
                "max_age_ready": "24h" if is_healthy else "30m",
                "hyperfleet_api": {"endpoint": endpoint, "page_size": PAGE_SIZE},
            }
            async with SentinelProcess(Path(directory), config, environ=environ) as service:
                await _wait_for_cycles(service, 2)
                costs = [await _seconds_per_cycle(service, cycles) for _ in range(_ROUNDS)]
                figures = PulseFigures(
                    resources,
                    broker,
                    is_healthy,
                    has_fields,
                    min(costs) / resources * 1e6,
                    peak_mebibytes(service.pid),
                )
                assert await service.stop() == 0
    return figures


async def _seconds_per_cycle(service: SentinelProcess, count: int) -> float:
    """The CPU of a cycle, on average over at least this many."""
    await _wait_for_cycles(service, 1)
    first_cycle, started = await _cycles(service), cpu_seconds(service.pid)
    await _wait_for_cycles(service, count)
    return (cpu_seconds(service.pid) - started) / (await _cycles(service) - first_cycle)


async def _cycles(service: SentinelProcess) -> int:
    return int(await service.metric("reconcile_duration_seconds_count"))


async def _wait_for_cycles(service: SentinelProcess, count: int) -> None:
    """Wait for at least this many more cycles."""
    for _ in range(count):
        await service.until_event("cycle.done", since=len(service.lines), timeout=_TIMEOUT)


@asynccontextmanager
async def _server(resources: int, updated: datetime, *, has_cursor: bool) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.fleet.fake_api",
        "--count",
        str(resources),
        "--last-updated",
        updated.isoformat(),
        *(["--cursor"] if has_cursor else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            address = (await process.stdout.readline()).decode().strip()
        yield address
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _rabbitmq() -> AsyncIterator[dict[str, str]]:
    """Yield the settings of a new exchange, whose queue keeps only the last messages."""
    name = f"bench-{uuid.uuid4().hex}"
    async with await aio_pika.connect(URL) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT, durable=True)
        queue = await channel.declare_queue(name, exclusive=True, arguments={"x-max-length": 1000})
        await queue.bind(exchange)
        yield {"BROKER_TYPE": "rabbitmq", "BROKER_URL": URL, "BROKER_EXCHANGE": name}
        await queue.delete(if_unused=False, if_empty=False)
        await exchange.delete(if_unused=False)


@asynccontextmanager
async def _pubsub() -> AsyncIterator[dict[str, str]]:
    """Yield the settings of a new topic. Without subscriptions the emulator stores nothing."""
    yield {
        "BROKER_TYPE": "pubsub",
        "BROKER_PROJECT_ID": "sentinel-bench",
        "BROKER_TOPIC": f"bench-{uuid.uuid4().hex}",
        "BROKER_CREATE_TOPIC": "true",
        EMULATOR_VARIABLE: os.environ[EMULATOR_VARIABLE],
    }


_BROKERS = {"rabbitmq": _rabbitmq, "pubsub": _pubsub}

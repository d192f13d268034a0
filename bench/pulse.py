"""The pulse: CPU per resource or per confirmed event and peak memory of `sentinel run`.

    python -m bench.pulse [--resources N] [--rounds N] [--output json]

The process under test is `sentinel run` with its log at level info in a pipe, a server in another process and a
real RabbitMQ. The figures are its whole CPU time as the kernel counts it, over many consecutive cycles, so nothing
is left out. By default they are measured on three shapes of resources, with the default page size, once with every
resource due and once with nothing due; and on one shape with the reports that a healthy fleet gets between polls.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import aio_pika
import msgspec

from bench.budget import Budget
from bench.command_line import DEFAULT_ROUNDS, main
from bench.processes import cpu_seconds, peak_mebibytes
from bench.publish import URL
from sentinel.pulse.definition import PulseApiSettings
from tests.support.fleet.fake_api import ResourceShape
from tests.support.processes.service import SentinelProcess
from tools.services.pubsub import EMULATOR_VARIABLE

LARGE_PAGE = 500
DEFAULT_PAGE = next(f.default for f in msgspec.structs.fields(PulseApiSettings) if f.name == "page_size")
SHAPES_RESOURCES = 5_000
"""The fleet on which shapes are compared."""

PER_RESOURCE = 4.0
"""CPU microseconds per quiet resource in pages of 500, whole resources."""
PER_RESOURCE_WITH_FIELDS = 2.5
PER_RESOURCE_BY_DEFAULT = 6.0
"""On any shape, with the default page size."""
PER_EVENT = 35.0
"""CPU microseconds of everything that the process does for a confirmed event, with the default page size."""

_RESOURCES_PER_ROUND = 100_000
_EVENTS_PER_ROUND = 50_000
_POLLS_BETWEEN_REPORTS = 360
"""Half an hour at the default poll interval of 5 s. Between two polls, more than a quarter of the pages of 100
changes."""
_ROUNDS = 8
_TIMEOUT = 300.0

_SEED_DATA = {"resource_id": ".id", "resource_type": ".kind", "region": ".metadata.labels.region"}
_PUBLIC_DATA = {"id": ".id", "kind": ".kind", "href": ".href", "generation": ".generation"}
_CONFIGS: Mapping[ResourceShape, Mapping[str, object]] = {
    ResourceShape.PLAIN: {"message_data": _SEED_DATA},
    ResourceShape.METADATA: {
        "message_data": _SEED_DATA,
        "resource_selector": [{"label": "region", "value": "us-east"}],
    },
    ResourceShape.CONDITIONS: {"message_data": _PUBLIC_DATA},
}
"""What users of each shape configure: seed 000's sample file, and the conventional data of the public system."""

SHAPE_NAMES = {
    ResourceShape.PLAIN: "our own API's shape",
    ResourceShape.METADATA: "labels in `metadata`, flat status",
    ResourceShape.CONDITIONS: "the public API's conditions",
}


class FleetState(StrEnum):
    """What a cycle does with each resource."""

    QUIET = "quiet"
    """Nothing is due, and nothing changes."""
    STEADY = "steady"
    """Nothing is due. Adapters report on each resource every half an hour, spread evenly over the polls."""
    PACED = "paced"
    """Every status is stale. Every resource is due and was published recently."""
    DUE = "due"
    """Every status is stale and nothing is paced. Every resource is published in every cycle."""


class PulseFigures(msgspec.Struct, frozen=True):
    """The cost of one fleet.

    The cheapest round counts: other load on the machine only adds to a figure, and comes in bursts.
    """

    resources: int
    broker: str
    state: FleetState
    shape: ResourceShape
    page_size: int
    has_fields: bool
    """Whether the server supports `fields` and streams. Otherwise it returns whole resources to polls only."""
    microseconds: float
    """CPU per resource. If every resource is due, this is the CPU per confirmed event."""
    peak_mebibytes: float


async def measure(
    resources: int,
    *,
    broker: str = "rabbitmq",
    state: FleetState = FleetState.QUIET,
    shape: ResourceShape = ResourceShape.PLAIN,
    page_size: int = LARGE_PAGE,
    has_fields: bool = False,
    rounds: int = _ROUNDS,
) -> PulseFigures:
    """Run a pulse over this many resources, connected to `rabbitmq` or `pubsub`."""
    is_quiet = state in (FleetState.QUIET, FleetState.STEADY)
    updated = datetime.now(UTC) - timedelta(hours=1)
    cycles = max(1, (_EVENTS_PER_ROUND if state is FleetState.DUE else _RESOURCES_PER_ROUND) // resources)
    walks_between_reports = _POLLS_BETWEEN_REPORTS if state is FleetState.STEADY else 0
    async with (
        fleet_server(
            resources, updated, shape, has_cursor=has_fields, walks_between_reports=walks_between_reports
        ) as endpoint,
        _BROKERS[broker]() as environ,
    ):
        with tempfile.TemporaryDirectory() as directory:
            config = {
                **_CONFIGS[shape],
                "resource_type": "clusters",
                "poll_interval": "100ms",
                "max_age_not_ready": "24h",
                "max_age_ready": "24h" if is_quiet else "30m",
                "hyperfleet_api": {"endpoint": endpoint, "page_size": page_size},
            }
            if state is FleetState.DUE:
                config["republish_interval"] = "0s"
            async with SentinelProcess(
                Path(directory), config, environ=environ, ignored_event="event.published"
            ) as service:
                await _wait_for_cycles(service, 2)
                if has_fields:
                    await _wait_until_streaming(service)
                costs = [await _seconds_per_cycle(service, cycles) for _ in range(rounds)]
                last = await service.until_event("cycle.done", since=len(service.lines), timeout=_TIMEOUT)
                assert last["published"] == (resources if state is FleetState.DUE else 0), last
                figures = PulseFigures(
                    resources,
                    broker,
                    state,
                    shape,
                    page_size,
                    has_fields,
                    min(costs) / resources * 1e6,
                    peak_mebibytes(service.pid),
                )
                assert await service.stop() == 0
    return figures


async def measure_shapes(
    resources: int = SHAPES_RESOURCES, *, rounds: int = _ROUNDS, page_size: int = DEFAULT_PAGE
) -> Sequence[PulseFigures]:
    """Run a pulse over each shape, with every resource due and with nothing due; and over one with reports."""
    cases = [(state, shape) for state in (FleetState.DUE, FleetState.QUIET) for shape in ResourceShape]
    cases.append((FleetState.STEADY, ResourceShape.PLAIN))
    return [
        await measure(resources, state=state, shape=shape, page_size=page_size, rounds=rounds)
        for state, shape in cases
    ]


def budgets(shapes: Sequence[PulseFigures]) -> list[Budget]:
    """Return the budgets of the whole process, on all shapes."""
    return [
        Budget(
            f"{_what(one)}, pages of {one.page_size}: {SHAPE_NAMES[one.shape]}",
            one.microseconds,
            "µs",
            PER_EVENT if one.state is FleetState.DUE else PER_RESOURCE_BY_DEFAULT,
        )
        for one in shapes
    ]


def _what(figures: PulseFigures) -> str:
    if figures.state is FleetState.DUE:
        return "the whole pulse: CPU per confirmed event, everything included"
    if figures.state is FleetState.STEADY:
        return f"the same, one of {_POLLS_BETWEEN_REPORTS} reported on since the last poll"
    return "the whole pulse: CPU per resource that is not due"


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


async def _wait_until_streaming(service: SentinelProcess) -> None:
    """Wait until the stream has sent every resource."""
    async with asyncio.timeout(_TIMEOUT):
        while not await service.metric("stream_items_total", type="synced"):
            await _wait_for_cycles(service, 1)


@asynccontextmanager
async def fleet_server(
    resources: int,
    updated: datetime,
    shape: ResourceShape,
    *,
    has_cursor: bool,
    walks_between_reports: int = 0,
) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.fleet.fake_api",
        f"--count={resources}",
        f"--last-updated={updated.isoformat()}",
        f"--shape={shape}",
        f"--walks-between-reports={walks_between_reports}",
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
async def rabbitmq_exchange() -> AsyncIterator[dict[str, str]]:
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


_BROKERS = {"rabbitmq": rabbitmq_exchange, "pubsub": _pubsub}


if __name__ == "__main__":
    sys.exit(main("pulse", __doc__, measure_shapes, budgets, resources=SHAPES_RESOURCES, rounds=DEFAULT_ROUNDS))

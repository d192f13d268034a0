"""The whole loop: the cost of a resource from its creation to Ready, by process.

    python -m bench.loop [--resources N] [--output json]

Every part is its own process, as in production: the fleet API on SQLite, a pulse that follows progress, three
adapters that wait for each other in a chain, and RabbitMQ. The figures are the CPU time of each process, including
polls, from the first creation until nothing is due, and the number of events. The max ages are hours, so that they
cause no events: if the pulse missed a completion, its resource would never be Ready and the benchmark would fail.
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
from prometheus_client.parser import text_string_to_metric_families

from bench import clusters
from bench.budget import Budget, table
from bench.chain import CHAIN
from bench.command_line import main
from bench.processes import cpu_seconds, peak_mebibytes
from bench.publish import URL
from tests.support.fleet.http_client import ROOT
from tests.support.processes.service import SentinelProcess, ServiceProcess

RESOURCES = 1_000
NEEDED = 1 + len(CHAIN)
"""The events that a chain needs: one for the spec, and one for each completion. The last one is for adapters
that are not required. If an adapter runs late enough to find its dependency complete, there are fewer."""

EVENTS_BUDGET = 1.0
EVALUATION_BUDGET = 3_000.0
"""CPU microseconds of an adapter per evaluation: three requests, a task, a message."""

_TIMEOUT = 600.0
_QUIET_CYCLES = 3
"""After this many polls in a row without a due resource, nothing is in progress."""


class Stage(msgspec.Struct, frozen=True):
    """The cost of one process.

    Each adapter is a process of its own, so the stages add up to the cost of the loop without its broker.
    """

    name: str
    microseconds_per_resource: float
    peak_mebibytes: float


class LoopFigures(msgspec.Struct, frozen=True):
    """The cost of a fleet from its creation until all resources are Ready and nothing is due."""

    resources: int
    seconds: float
    """From the first creation until nothing was due for some polls, which are a second apart."""
    events_per_resource: float
    stages: Sequence[Stage]
    evaluations: int
    evaluation_microseconds: float
    """CPU of the adapters per evaluation."""


async def measure(resources: int = RESOURCES) -> LoopFigures:
    """Run the loop with this many resources."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = await stack.enter_async_context(_broker())
        api = await stack.enter_async_context(clusters.sqlite_api(directory, required_adapters=CHAIN))
        endpoint = await api.url()
        adapters = {
            name: await stack.enter_async_context(_adapter(name, directory, endpoint, broker)) for name in CHAIN
        }
        await asyncio.gather(*(adapter.until_event("broker.connected") for adapter in adapters.values()))
        configuration = clusters.pulse_configuration(endpoint, poll_interval="1s") | {"pulse_on_progress": True}
        pulse = await stack.enter_async_context(SentinelProcess(directory, configuration, environ=broker))
        await pulse.until_event("cycle.done")
        processes: dict[str, ServiceProcess] = {"api": api, "pulse": pulse, **adapters}
        before = {name: cpu_seconds(process.pid) for name, process in processes.items()}
        started = time.monotonic()

        async with _session(endpoint) as session:
            await clusters.create(session, resources)
        await _until_quiet(pulse, resources)

        spent = {name: cpu_seconds(process.pid) - before[name] for name, process in processes.items()}
        seconds = time.monotonic() - started
        await _all_ready(endpoint, resources)
        evaluations = sum(
            [int(await _total(each, "hyperfleet_adapter_evaluations_total")) for each in adapters.values()]
        )
        return LoopFigures(
            resources=resources,
            seconds=seconds,
            events_per_resource=await pulse.metric("events_published_total") / resources,
            stages=[
                Stage(name, cpu / resources * 1e6, peak_mebibytes(processes[name].pid))
                for name, cpu in spent.items()
            ],
            evaluations=evaluations,
            evaluation_microseconds=sum(spent[name] for name in CHAIN) / evaluations * 1e6,
        )


def budgets(figures: LoopFigures) -> list[Budget]:
    """Return the budgets of the loop."""
    return [
        Budget(
            f"creation to Ready: events per resource, relative to the {NEEDED} that a chain of {len(CHAIN)} needs",
            figures.events_per_resource / NEEDED,
            "×",
            EVENTS_BUDGET,
        ),
        Budget("an adapter's evaluation: its CPU", figures.evaluation_microseconds, "µs", EVALUATION_BUDGET),
    ]


def section(figures: LoopFigures) -> list[str]:
    """Return the section of the performance page."""
    total = sum(stage.microseconds_per_resource for stage in figures.stages)
    evaluations = figures.evaluations / figures.resources
    stages = (
        (stage.name, f"{stage.microseconds_per_resource / 1000:.2f} ms", f"{stage.peak_mebibytes:.0f} MiB")
        for stage in figures.stages
    )
    return [
        "\n## The whole loop\n",
        f"{figures.resources:,} resources from creation to Ready, through a chain of {len(CHAIN)} adapters:",
        "the API on SQLite, a pulse that follows progress and polls every second, and the adapters, each in",
        "its own process, connected by RabbitMQ. "
        f"A resource took {figures.events_per_resource:.2f} events and {evaluations:.1f} evaluations;",
        f"all of them took {figures.seconds:.0f} s of wall time.\n",
        *table(("stage", "CPU per resource", "peak memory"), (*stages, ("all", f"{total / 1000:.2f} ms", ""))),
    ]


def _adapter(name: str, directory: Path, endpoint: str, broker: Mapping[str, str]) -> ServiceProcess:
    file = directory / f"{name}.yaml"
    file.write_bytes(
        msgspec.json.encode({"task": f"bench.chain:{name}", "hyperfleet_api": {"endpoint": endpoint}})
    )
    return ServiceProcess(
        (
            "adapter",
            f"--config={file}",
            "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
        ),
        environ={**broker, "BROKER_SUBSCRIPTION_ID": _queue(broker, name)},
    )


def _queue(broker: Mapping[str, str], adapter: str) -> str:
    return f"{broker['BROKER_EXCHANGE']}-{adapter}"


@asynccontextmanager
async def _broker() -> AsyncIterator[Mapping[str, str]]:
    """Yield the settings of a new exchange. It and the adapters' queues are deleted afterwards."""
    environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": URL, "BROKER_EXCHANGE": f"bench-{uuid.uuid4().hex}"}
    try:
        yield environ
    finally:
        async with asyncio.timeout(_TIMEOUT), await aio_pika.connect(URL) as connection:
            channel = await connection.channel()
            for name in CHAIN:
                for queue in (_queue(environ, name), f"{_queue(environ, name)}-dead-letters"):
                    await channel.queue_delete(queue)
            await channel.exchange_delete(environ["BROKER_EXCHANGE"])


async def _until_quiet(pulse: SentinelProcess, resources: int) -> None:
    """Wait until nothing was due for some polls."""
    quiet, position = 0, len(pulse.lines)
    async with asyncio.timeout(_TIMEOUT):
        while quiet < _QUIET_CYCLES:
            done = await pulse.until_event("cycle.done", since=position, timeout=_TIMEOUT)
            position = pulse.lines.index(done, position) + 1
            quiet = quiet + 1 if done["skipped"] == resources else 0


async def _all_ready(endpoint: str, resources: int) -> None:
    seen, after = 0, ""
    async with _session(endpoint) as session:
        while True:
            query = {"size": "500", "fields": "status.phase"} | ({"after": after} if after else {})
            async with session.get(f"{ROOT}/clusters", params=query) as response:
                page = await response.json()
            left = [item["id"] for item in page["items"] if item["status"]["phase"] != "Ready"]
            assert not left, f"{len(left)} of a page are not Ready, such as {left[0]}"
            seen += len(page["items"])
            after = page["next"]
            if not after:
                break
    assert seen == resources


def _session(endpoint: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(endpoint, timeout=aiohttp.ClientTimeout(total=60))


async def _total(process: ServiceProcess, name: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(await process.metrics_text())
        for sample in family.samples
        if sample.name == name
    )


if __name__ == "__main__":
    sys.exit(main("loop", __doc__, measure, budgets, section, resources=RESOURCES))

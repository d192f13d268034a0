"""The whole loop: the cost of a resource from its creation to Ready, by process.

    python -m bench.loop [--resources N] [--output json]

Every part is its own process, as in production: the fleet API on SQLite, a pulse that follows progress, three
adapters that wait for each other in a chain, and RabbitMQ. The figures are the CPU time of each process, including
polls, from the first creation until nothing is due, and the number of events. The max ages are hours, so that they
cause no events: if the pulse missed a completion, its resource would never be Ready and the benchmark would fail.
"""

from __future__ import annotations

import argparse
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

from bench.budget import Budget, print_budgets
from bench.chain import CHAIN
from bench.processes import cpu_seconds, peak_mebibytes
from bench.publish import URL
from tests.support.fleet.http_client import ROOT
from tests.support.processes.service import ApiProcess, SentinelProcess, ServiceProcess

RESOURCES = 1_000
NEEDED = 1 + len(CHAIN)
"""The events that a chain needs: one for the spec, and one for each completion. The last one is for adapters
that are not required. If an adapter runs late enough to find its dependency complete, there are fewer."""

EVENTS_BUDGET = 1.0
EVALUATION_BUDGET = 3_000.0
"""CPU microseconds of an adapter per evaluation: three requests, a task, a message."""

_KINDS = ({"plural": "clusters", "kind": "Cluster", "required_adapters": list(CHAIN)},)
_CREATORS = 8
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
        api = await stack.enter_async_context(
            ApiProcess(f"sqlite:///{directory}/fleet.db", kinds=_KINDS, directory=directory)
        )
        endpoint = await api.url()
        adapters = {
            name: await stack.enter_async_context(_adapter(name, directory, endpoint, broker)) for name in CHAIN
        }
        await asyncio.gather(*(adapter.until_event("broker.connected") for adapter in adapters.values()))
        pulse = await stack.enter_async_context(
            SentinelProcess(directory, _configuration(endpoint), environ=broker)
        )
        await pulse.until_event("cycle.done")
        processes: dict[str, ServiceProcess] = {"api": api, "pulse": pulse, **adapters}
        before = {name: cpu_seconds(process.pid) for name, process in processes.items()}
        started = time.monotonic()

        await _create(endpoint, resources)
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
    return [
        "\n## The whole loop\n",
        f"{figures.resources:,} resources from creation to Ready, through a chain of {len(CHAIN)} adapters:",
        "the API on SQLite, a pulse that follows progress and polls every second, and the adapters, each in",
        "its own process, connected by RabbitMQ. "
        f"A resource took {figures.events_per_resource:.2f} events and {evaluations:.1f} evaluations;",
        f"all of them took {figures.seconds:.0f} s of wall time.\n",
        "| stage | CPU per resource | peak memory |",
        "|---|---|---|",
        *(
            f"| {stage.name} | {stage.microseconds_per_resource / 1000:.2f} ms | {stage.peak_mebibytes:.0f} MiB |"
            for stage in figures.stages
        ),
        f"| all | {total / 1000:.2f} ms | |",
    ]


def _configuration(endpoint: str) -> Mapping[str, object]:
    return {
        "resource_type": "clusters",
        "poll_interval": "1s",
        "max_age_not_ready": "12h",
        "max_age_ready": "24h",
        "pulse_on_progress": True,
        "hyperfleet_api": {"endpoint": endpoint, "page_size": 500},
    }


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


async def _create(endpoint: str, resources: int) -> None:
    numbers = iter(range(resources))
    async with aiohttp.ClientSession(endpoint, timeout=aiohttp.ClientTimeout(total=60)) as session:

        async def creator() -> None:
            for number in numbers:
                body = {"name": f"cluster-{number}", "labels": {"region": "us-east"}, "spec": {"replicas": 3}}
                async with session.post(f"{ROOT}/clusters", json=body) as response:
                    assert response.status == 201, await response.text()

        async with asyncio.TaskGroup() as group:
            for _ in range(_CREATORS):
                group.create_task(creator())


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
    async with aiohttp.ClientSession(endpoint, timeout=aiohttp.ClientTimeout(total=60)) as session:
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


async def _total(process: ServiceProcess, name: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(await process.metrics_text())
        for sample in family.samples
        if sample.name == name
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="The cost of a resource from its creation to Ready.")
    parser.add_argument("--resources", type=int, default=RESOURCES)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.resources))
    if options.output == "json":
        print(msgspec.json.encode(figures).decode())
        return 0 if all(budget.is_kept for budget in budgets(figures)) else 1
    print("\n".join(section(figures)))
    return print_budgets(budgets(figures))


if __name__ == "__main__":
    sys.exit(main())

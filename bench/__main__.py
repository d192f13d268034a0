"""Measures the budgets and writes docs/reference/performance.md. Exits 1 if one is exceeded.

Figures are CPU per item, or ratios within one run, because wall time depends on the machine more than on the code.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import api, compose, expressions, loop, memory, parts, publish, publish_pubsub, pulse
from bench.api import ApiFigures
from bench.budget import Budget, print_budgets
from bench.compose import Composing
from bench.expressions import ExpressionFigures
from bench.loop import LoopFigures
from bench.memory import MemoryFigures
from bench.parts import PartsFigures
from bench.publish import Publishing
from bench.publish_pubsub import PubSubPublishing
from bench.pulse import PulseFigures

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TYPICAL = 100_000
"""The fleet size of the budgets."""
PER_RESOURCE = 8.0
PER_RESOURCE_WITH_FIELDS = 4.0
MEBIBYTES = {
    ("rabbitmq", True): 64.0,
    ("rabbitmq", False): 96.0,
    ("pubsub", True): 128.0,
    ("pubsub", False): 128.0,
}
LINEAR = 1.25
"""The limit for the cost of a resource in the largest fleet, relative to a fleet a hundredth its size."""


class Figures(msgspec.Struct, frozen=True):
    """All measurements."""

    pulses: Sequence[PulseFigures]
    """Healthy fleets on RabbitMQ, by size."""
    at_typical_size: Sequence[PulseFigures]
    """Both brokers, healthy and with stale statuses."""
    with_fields: PulseFigures
    """A healthy fleet on a server that returns only the requested fields."""
    rabbitmq: Publishing
    pubsub: PubSubPublishing
    composing: Composing
    expressions: ExpressionFigures
    api: ApiFigures
    memory: Sequence[MemoryFigures]
    parts: PartsFigures
    loop: LoopFigures


async def measure() -> Figures:
    """Measure everything and print progress."""
    pulses = []
    for size in SIZES:
        _print_progress(f"a healthy fleet of {size:,}")
        pulses.append(await pulse.measure(size))
    at_typical_size = [figures for figures in pulses if figures.resources == TYPICAL]
    for broker, is_healthy in MEBIBYTES:
        if (broker, is_healthy) != ("rabbitmq", True):
            _print_progress(
                f"{TYPICAL:,} resources on {broker}, {'healthy' if is_healthy else 'every status stale'}"
            )
            at_typical_size.append(await pulse.measure(TYPICAL, broker=broker, is_healthy=is_healthy))
    _print_progress(f"{TYPICAL:,} resources on a server that supports `fields`")
    with_fields = await pulse.measure(TYPICAL, has_fields=True)
    _print_progress("confirmed events on RabbitMQ")
    rabbitmq = await asyncio.to_thread(publish.measure)
    _print_progress("confirmed events on Pub/Sub")
    pubsub = await asyncio.to_thread(publish_pubsub.measure)
    _print_progress("composing")
    composing = compose.measure()
    _print_progress("conditions by expression")
    by_expression = expressions.measure()
    _print_progress(f"{loop.RESOURCES:,} resources through the whole loop")
    whole_loop = await loop.measure()
    _print_progress("memory of sentinel api")
    resident = await memory.measure()
    _print_progress("our implementations against libraries")
    against_libraries = await parts.measure()
    return Figures(
        pulses=pulses,
        at_typical_size=at_typical_size,
        with_fields=with_fields,
        rabbitmq=rabbitmq,
        pubsub=pubsub,
        composing=composing,
        expressions=by_expression,
        api=await api.measure(_print_progress),
        memory=resident,
        parts=against_libraries,
        loop=whole_loop,
    )


def budgets(figures: Figures) -> list[Budget]:
    """Return all budgets."""
    by_size = {one.resources: one.microseconds_per_resource for one in figures.pulses}
    return [
        Budget(
            f"fetch, decode, decide, pace: CPU per resource at {TYPICAL:,}", by_size[TYPICAL], "µs", PER_RESOURCE
        ),
        Budget(
            "the same, if the server supports `fields`",
            figures.with_fields.microseconds_per_resource,
            "µs",
            PER_RESOURCE_WITH_FIELDS,
        ),
        Budget(
            f"growth of the first from {SIZES[1]:,} to {SIZES[-1]:,}",
            by_size[SIZES[-1]] / by_size[SIZES[1]],
            "×",
            LINEAR,
        ),
        *(
            Budget(
                f"peak memory at {one.resources:,} on {one.broker}, {_state(one)}",
                one.peak_mebibytes,
                "MiB",
                MEBIBYTES[one.broker, one.is_healthy],
            )
            for one in figures.at_typical_size
        ),
        Budget(
            "publish on RabbitMQ: CPU per confirmed event",
            figures.rabbitmq.publisher_microseconds,
            "µs",
            publish.BUDGET_MICROSECONDS,
        ),
        Budget(
            "the same: throughput relative to the same frames on a bare connection",
            figures.rabbitmq.throughput_ratio,
            "×",
            publish.BUDGET_RATIO,
            is_floor=True,
        ),
        Budget(
            "publish on Pub/Sub: CPU per confirmed event",
            figures.pubsub.microseconds,
            "µs",
            publish_pubsub.BUDGET_MICROSECONDS,
        ),
        Budget("compose a bare path", figures.composing.path_microseconds, "µs", compose.PATH_BUDGET),
        Budget(
            "compose a conditional", figures.composing.conditional_microseconds, "µs", compose.CONDITIONAL_BUDGET
        ),
        *expressions.budgets(figures.expressions),
        *api.budgets(figures.api),
        *memory.budgets(figures.memory),
        *parts.budgets(figures.parts, report_microseconds=figures.api.reports[0].together.server),
        *loop.budgets(figures.loop),
    ]


def page(figures: Figures) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Performance\n",
        "<!-- Written by `make bench`. -->\n",
        "Measured on one machine, on loopback, with a real RabbitMQ, Google's Pub/Sub emulator and a server in",
        "another process; resources of 1.8 kB in pages of 500. CPU is that of the Sentinel process alone.\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}.\n",
        "| what | measured | budget |",
        "|---|---|---|",
        *(f"| {budget} |" for budget in budgets(figures)),
        "\n## By size of the fleet\n",
        "| resources | CPU per resource | peak memory |",
        "|---|---|---|",
        *(
            f"| {one.resources:,} | {one.microseconds_per_resource:.1f} µs | {one.peak_mebibytes:.0f} MiB |"
            for one in figures.pulses
        ),
        *api.section(figures.api),
        *expressions.section(figures.expressions),
        *memory.section(figures.memory),
        *loop.section(figures.loop),
        *parts.section(figures.parts),
    ]
    return "\n".join(lines) + "\n"


def _state(figures: PulseFigures) -> str:
    return "healthy" if figures.is_healthy else "every status stale"


def _print_progress(what: str) -> None:
    print(f"measuring {what} ...", flush=True)


def main() -> int:
    """Measure, write the page and print the budgets."""
    figures = asyncio.run(measure())
    PAGE.write_text(page(figures))
    return print_budgets(budgets(figures))


if __name__ == "__main__":
    sys.exit(main())

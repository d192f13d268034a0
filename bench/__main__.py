"""Measures the budgets and writes docs/reference/performance.md; exits 1 where one is exceeded.

Everything is CPU per item or a ratio within one run, because wall time says more about the machine than about us.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import api, compose, loop, memory, parts, publish, publish_pubsub, pulse
from bench.api import ApiFigures
from bench.budget import Budget
from bench.compose import Composing
from bench.loop import LoopFigures
from bench.memory import MemoryFigures
from bench.parts import PartsFigures
from bench.publish import Publishing
from bench.publish_pubsub import PubSubPublishing
from bench.pulse import PulseFigures

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TYPICAL = 100_000
"""The size that the budgets speak of."""
PER_RESOURCE = 8.0
PER_RESOURCE_WITH_FIELDS = 4.0
MEBIBYTES = {
    ("rabbitmq", True): 64.0,
    ("rabbitmq", False): 96.0,
    ("pubsub", True): 128.0,
    ("pubsub", False): 128.0,
}
LINEAR = 1.25
"""How much more a resource may cost in the largest fleet than in one a hundredth its size."""


class Figures(msgspec.Struct, frozen=True):
    """Everything that was measured."""

    pulses: Sequence[PulseFigures]
    """Healthy fleets on RabbitMQ, by size."""
    at_typical_size: Sequence[PulseFigures]
    """Both brokers, healthy and standing still."""
    with_fields: PulseFigures
    """A healthy fleet on a server that sends just the fields that are read."""
    rabbitmq: Publishing
    pubsub: PubSubPublishing
    composing: Composing
    api: ApiFigures
    memory: Sequence[MemoryFigures]
    parts: PartsFigures
    loop: LoopFigures


async def measured() -> Figures:
    """Measures, and says what it is doing."""
    pulses = []
    for size in SIZES:
        _say(f"a healthy fleet of {size:,}")
        pulses.append(await pulse.measure(size))
    at_typical_size = [figures for figures in pulses if figures.resources == TYPICAL]
    for broker, is_healthy in MEBIBYTES:
        if (broker, is_healthy) != ("rabbitmq", True):
            _say(
                f"{TYPICAL:,} resources on {broker}, {'healthy' if is_healthy else 'every status standing still'}"
            )
            at_typical_size.append(await pulse.measure(TYPICAL, broker=broker, is_healthy=is_healthy))
    _say(f"{TYPICAL:,} resources on a server that knows fields")
    with_fields = await pulse.measure(TYPICAL, has_fields=True)
    _say("confirmed events on RabbitMQ")
    rabbitmq = await asyncio.to_thread(publish.measure)
    _say("confirmed events on Pub/Sub")
    pubsub = await asyncio.to_thread(publish_pubsub.measure)
    _say("composing")
    composing = compose.measure()
    _say(f"{loop.RESOURCES:,} resources through the whole loop")
    whole_loop = await loop.measure()
    _say("memory of sentinel api")
    resident = await memory.measure()
    _say("parts of our own against libraries")
    against_libraries = await parts.measure()
    return Figures(
        pulses=pulses,
        at_typical_size=at_typical_size,
        with_fields=with_fields,
        rabbitmq=rabbitmq,
        pubsub=pubsub,
        composing=composing,
        api=await api.measure(_say),
        memory=resident,
        parts=against_libraries,
        loop=whole_loop,
    )


def budgets(figures: Figures) -> list[Budget]:
    """Every budget that can be shown today."""
    by_size = {one.resources: one.microseconds_per_resource for one in figures.pulses}
    return [
        Budget(
            f"fetch, decode, decide, pace: CPU a resource at {TYPICAL:,}", by_size[TYPICAL], "µs", PER_RESOURCE
        ),
        Budget(
            "the same, where the server knows `fields`",
            figures.with_fields.microseconds_per_resource,
            "µs",
            PER_RESOURCE_WITH_FIELDS,
        ),
        Budget(
            f"growth of the former from {SIZES[1]:,} to {SIZES[-1]:,}",
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
            "publish on RabbitMQ: CPU a confirmed event",
            figures.rabbitmq.publisher_microseconds,
            "µs",
            publish.BUDGET_MICROSECONDS,
        ),
        Budget(
            "the same, of the throughput of the same frames on a bare connection",
            figures.rabbitmq.throughput_ratio,
            "×",
            publish.BUDGET_RATIO,
            is_floor=True,
        ),
        Budget(
            "publish on Pub/Sub: CPU a confirmed event",
            figures.pubsub.microseconds,
            "µs",
            publish_pubsub.BUDGET_MICROSECONDS,
        ),
        Budget("compose a bare path", figures.composing.path_microseconds, "µs", compose.PATH_BUDGET),
        Budget(
            "compose a conditional", figures.composing.conditional_microseconds, "µs", compose.CONDITIONAL_BUDGET
        ),
        *api.budgets(figures.api),
        *memory.budgets(figures.memory),
        *parts.budgets(figures.parts, report_microseconds=figures.api.reports[0].together.server),
        *loop.budgets(figures.loop),
    ]


def page(figures: Figures) -> str:
    """The page, in Markdown."""
    lines = [
        "# Performance\n",
        "<!-- Written by `make bench`. -->\n",
        "Measured on one machine, on loopback, with a real RabbitMQ, Google's Pub/Sub emulator and a server in",
        "another process; resources of 1.8 kB in pages of 500. CPU is that of the Sentinel process alone.\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}.\n",
        "| what | measured | budget |",
        "|---|---|---|",
        *(f"| {budget} |" for budget in budgets(figures)),
        "\n## Against the size of the fleet\n",
        "| resources | CPU a resource | peak memory |",
        "|---|---|---|",
        *(
            f"| {one.resources:,} | {one.microseconds_per_resource:.1f} µs | {one.peak_mebibytes:.0f} MiB |"
            for one in figures.pulses
        ),
        *api.section(figures.api),
        *memory.section(figures.memory),
        *loop.section(figures.loop),
        *parts.section(figures.parts),
    ]
    return "\n".join(lines) + "\n"


def _state(figures: PulseFigures) -> str:
    return "healthy" if figures.is_healthy else "every status standing still"


def _say(what: str) -> None:
    print(f"measuring {what} ...", flush=True)


def main() -> int:
    """Measures, prints and writes."""
    figures = asyncio.run(measured())
    PAGE.write_text(page(figures))
    shown = budgets(figures)
    for budget in shown:
        print(f"{'ok  ' if budget.is_kept else 'OVER'} {budget}")
    return 0 if all(budget.is_kept for budget in shown) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measures the budgets and writes docs/reference/performance.md; exits 1 where one is exceeded.

Everything is CPU per item or a ratio within one run, because wall time says more about the machine than about us.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path

import msgspec

from bench import publish, pulse
from bench.publish import Publishing
from bench.pulse import PulseFigures

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"
BROKER = "amqp://guest:guest@127.0.0.1:5672/"

SIZES = (1_000, 10_000, 100_000)
PER_RESOURCE, PER_EVENT = 8.0, 40.0
HEALTHY_MEBIBYTES, STUCK_MEBIBYTES = 64.0, 96.0
OF_BARE_FRAMES = 0.90
LINEAR = 1.25
"""How much more a resource may cost in the largest fleet than in the one a tenth its size."""


class Budget(msgspec.Struct, frozen=True):
    """A figure beside what it may be."""

    what: str
    figure: str
    budget: str
    is_kept: bool


def budgets(pulses: list[PulseFigures], stuck: PulseFigures, published: Publishing) -> list[Budget]:
    """Every budget that can be shown today."""
    largest, before = pulses[-1], pulses[-2]
    growth = largest.microseconds_per_resource / before.microseconds_per_resource
    return [
        Budget(
            f"fetch, decode, decide, pace: CPU a resource at {largest.resources:,}",
            f"{largest.microseconds_per_resource:.1f} µs",
            f"≤ {PER_RESOURCE:g} µs",
            largest.microseconds_per_resource <= PER_RESOURCE,
        ),
        Budget(
            f"the same, against {before.resources:,} resources",
            f"{growth:.2f} ×",
            f"≤ {LINEAR:g} ×",
            growth <= LINEAR,
        ),
        Budget(
            f"peak memory at {largest.resources:,}, healthy",
            f"{largest.peak_mebibytes:.0f} MiB",
            f"≤ {HEALTHY_MEBIBYTES:g} MiB",
            largest.peak_mebibytes <= HEALTHY_MEBIBYTES,
        ),
        Budget(
            f"peak memory at {stuck.resources:,}, every status standing still",
            f"{stuck.peak_mebibytes:.0f} MiB",
            f"≤ {STUCK_MEBIBYTES:g} MiB",
            stuck.peak_mebibytes <= STUCK_MEBIBYTES,
        ),
        Budget(
            "publish on RabbitMQ: CPU a confirmed event",
            f"{published.publisher_microseconds:.1f} µs",
            f"≤ {PER_EVENT:g} µs",
            published.publisher_microseconds <= PER_EVENT,
        ),
        Budget(
            "the same, against the same frames on a bare connection",
            f"{published.cpu_ratio:.0%}",
            f"≥ {OF_BARE_FRAMES:.0%}",
            published.cpu_ratio >= OF_BARE_FRAMES,
        ),
    ]


def page(shown: list[Budget], pulses: list[PulseFigures], stuck: PulseFigures) -> str:
    """The page, in Markdown."""
    lines = [
        "# Performance\n",
        "<!-- Written by `make bench`. -->\n",
        "Measured on one machine, on loopback, with a real RabbitMQ and a server in another process; resources of",
        "1.8 kB in pages of 500. CPU is that of the Sentinel process alone, user and system.\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}.\n",
        "| what | measured | budget |",
        "|---|---|---|",
        *(f"| {budget.what} | {budget.figure} | {budget.budget} |" for budget in shown),
        "\n## Against the size of the fleet\n",
        "| resources | | CPU a resource | peak memory |",
        "|---|---|---|---|",
    ]
    for figures in (*pulses, stuck):
        state = "healthy" if figures.is_healthy else "every status stands still"
        lines.append(
            f"| {figures.resources:,} | {state} | {figures.microseconds_per_resource:.1f} µs "
            f"| {figures.peak_mebibytes:.0f} MiB |"
        )
    return "\n".join(lines) + "\n"


async def main() -> int:
    """Measures, prints and writes."""
    pulses = []
    for size in SIZES:
        print(f"measuring a fleet of {size:,} ...", flush=True)
        pulses.append(await pulse.measure(size, broker_url=BROKER))
    print(f"measuring a fleet of {SIZES[-1]:,} whose statuses stand still ...", flush=True)
    stuck = await pulse.measure(SIZES[-1], broker_url=BROKER, is_healthy=False)
    print("measuring confirmed events ...", flush=True)
    published = await asyncio.to_thread(publish.measure)
    shown = budgets(pulses, stuck, published)
    PAGE.write_text(page(shown, pulses, stuck))
    for budget in shown:
        mark = "ok  " if budget.is_kept else "OVER"
        print(f"{mark} {budget.what}: {budget.figure} ({budget.budget})")
    return 0 if all(budget.is_kept for budget in shown) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

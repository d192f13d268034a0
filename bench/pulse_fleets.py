"""The pulse on fleets of different sizes, shapes and states, and its parts alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from bench import compose, publish, publish_pubsub, pulse
from bench.budget import Budget, print_progress, table
from bench.compose import Composing
from bench.publish import Publishing
from bench.publish_pubsub import PubSubPublishing
from bench.pulse import FleetState, PulseFigures
from tests.support.fleet.fake_api import ResourceShape

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TYPICAL = 100_000
"""The fleet size of the budgets."""
MEBIBYTES = {
    ("rabbitmq", FleetState.QUIET): 64.0,
    ("rabbitmq", FleetState.PACED): 96.0,
    ("pubsub", FleetState.QUIET): 128.0,
    ("pubsub", FleetState.PACED): 128.0,
}
_STATES = {FleetState.QUIET: "healthy", FleetState.PACED: "every status stale"}
LINEAR = 1.25
"""The limit for the cost of a resource in the largest fleet, relative to a fleet a hundredth its size."""


class PulseFleetFigures(msgspec.Struct, frozen=True):
    """All measurements of the pulse."""

    shapes: Sequence[PulseFigures]
    """Whole processes on the shapes that users have, with the default page size, due and quiet."""
    pulses: Sequence[PulseFigures]
    """Quiet fleets on RabbitMQ in large pages, by size."""
    at_typical_size: Sequence[PulseFigures]
    """Both brokers, quiet and paced."""
    with_fields: PulseFigures
    """A quiet fleet on a server that returns only the requested fields."""
    rabbitmq: Publishing
    pubsub: PubSubPublishing
    composing: Composing


async def measure() -> PulseFleetFigures:
    """Measure the pulse and its parts, and print progress."""
    print_progress("the whole pulse on each shape of resources")
    shapes = await pulse.measure_shapes()
    pulses = []
    for size in SIZES:
        print_progress(f"a quiet fleet of {size:,}")
        pulses.append(await pulse.measure(size))
    at_typical_size = [figures for figures in pulses if figures.resources == TYPICAL]
    for broker, state in MEBIBYTES:
        if (broker, state) != ("rabbitmq", FleetState.QUIET):
            print_progress(f"{TYPICAL:,} resources on {broker}, {_STATES[state]}")
            at_typical_size.append(await pulse.measure(TYPICAL, broker=broker, state=state))
    print_progress(f"{TYPICAL:,} resources on a server that supports `fields` and streams")
    with_fields = await pulse.measure(TYPICAL, has_fields=True)
    print_progress("confirmed events on RabbitMQ")
    rabbitmq = await asyncio.to_thread(publish.measure)
    print_progress("confirmed events on Pub/Sub")
    pubsub = await asyncio.to_thread(publish_pubsub.measure)
    print_progress("composing")
    composing = compose.measure()
    return PulseFleetFigures(
        shapes=shapes,
        pulses=pulses,
        at_typical_size=at_typical_size,
        with_fields=with_fields,
        rabbitmq=rabbitmq,
        pubsub=pubsub,
        composing=composing,
    )


def budgets(figures: PulseFleetFigures) -> list[Budget]:
    """Return the budgets of the pulse."""
    by_size = {one.resources: one.microseconds for one in figures.pulses}
    return [
        *pulse.budgets(figures.shapes),
        Budget(
            f"the same, pages of {pulse.LARGE_PAGE}: {pulse.SHAPE_NAMES[ResourceShape.PLAIN]}",
            by_size[TYPICAL],
            "µs",
            pulse.PER_RESOURCE,
        ),
        Budget(
            "the same, if the server supports `fields`",
            figures.with_fields.microseconds,
            "µs",
            pulse.PER_RESOURCE_WITH_FIELDS,
        ),
        Budget(
            f"growth with the fleet in pages of {pulse.LARGE_PAGE}, from {SIZES[1]:,} to {SIZES[-1]:,}",
            by_size[SIZES[-1]] / by_size[SIZES[1]],
            "×",
            LINEAR,
        ),
        *(
            Budget(
                f"peak memory at {one.resources:,} on {one.broker}, {_STATES[one.state]}",
                one.peak_mebibytes,
                "MiB",
                MEBIBYTES[one.broker, one.state],
            )
            for one in figures.at_typical_size
        ),
        Budget(
            f"peak memory at {TYPICAL:,} on rabbitmq, healthy, following a stream",
            figures.with_fields.peak_mebibytes,
            "MiB",
            MEBIBYTES["rabbitmq", FleetState.QUIET],
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
    ]


def section(figures: PulseFleetFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## The pulse\n",
        "*The whole pulse* is all that the kernel charges to a `sentinel run` process with its log at level",
        "`info`: fetching, deciding, composing, publishing and logging, with nothing left out. The rows on",
        "publishing and composing are parts of it, measured alone. They do not add up to the whole. In the first",
        f"table nothing is due and nothing has changed since the last poll, in pages of {pulse.LARGE_PAGE}.\n",
        *table(
            ("resources", "CPU per resource", "peak memory"),
            (
                (f"{one.resources:,}", f"{one.microseconds:.1f} µs", f"{one.peak_mebibytes:.0f} MiB")
                for one in figures.pulses
            ),
        ),
    ]

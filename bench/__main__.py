"""Measures the budgets and writes docs/reference/performance.md. Exits 1 if one is exceeded.

Figures are CPU per item, or ratios within one run, because wall time depends on the machine more than on the code.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench import (
    agent,
    api,
    compose,
    drift,
    expressions,
    hub,
    kdl,
    loop,
    machine,
    memory,
    operator,
    parts,
    proxy,
    publish,
    publish_pubsub,
    pulse,
    reaction,
    rollouts,
    streams,
)
from bench.agent import AgentFigures
from bench.api import ApiFigures
from bench.budget import Budget, print_budgets, table
from bench.compose import Composing
from bench.drift import DriftFigures
from bench.expressions import ExpressionFigures
from bench.hub import HubFigures
from bench.kdl import KdlFigures
from bench.loop import LoopFigures
from bench.memory import MemoryFigures
from bench.operator import OperatorFigures
from bench.parts import PartsFigures
from bench.proxy import ProxyFigures
from bench.publish import Publishing
from bench.publish_pubsub import PubSubPublishing
from bench.pulse import FleetState, PulseFigures
from bench.reaction import ReactionFigures
from bench.rollouts import RolloutsFigures
from bench.streams import StreamFigures
from tests.support.fleet.fake_api import ResourceShape

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"

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


class Figures(msgspec.Struct, frozen=True):
    """All measurements."""

    machine: Mapping[str, float]
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
    expressions: ExpressionFigures
    operator: Sequence[OperatorFigures]
    drift: DriftFigures
    kdl: KdlFigures
    proxy: ProxyFigures
    hub: HubFigures
    rollouts: RolloutsFigures
    agent: AgentFigures
    api: ApiFigures
    streams: Sequence[StreamFigures]
    memory: Sequence[MemoryFigures]
    parts: PartsFigures
    loop: LoopFigures
    reaction: ReactionFigures


async def measure() -> Figures:
    """Measure everything and print progress."""
    _print_progress("the machine")
    of_machine = machine.measure()
    _print_progress("the whole pulse on each shape of resources")
    shapes = await pulse.measure_shapes()
    pulses = []
    for size in SIZES:
        _print_progress(f"a quiet fleet of {size:,}")
        pulses.append(await pulse.measure(size))
    at_typical_size = [figures for figures in pulses if figures.resources == TYPICAL]
    for broker, state in MEBIBYTES:
        if (broker, state) != ("rabbitmq", FleetState.QUIET):
            _print_progress(f"{TYPICAL:,} resources on {broker}, {_STATES[state]}")
            at_typical_size.append(await pulse.measure(TYPICAL, broker=broker, state=state))
    _print_progress(f"{TYPICAL:,} resources on a server that supports `fields` and streams")
    with_fields = await pulse.measure(TYPICAL, has_fields=True)
    _print_progress("confirmed events on RabbitMQ")
    rabbitmq = await asyncio.to_thread(publish.measure)
    _print_progress("confirmed events on Pub/Sub")
    pubsub = await asyncio.to_thread(publish_pubsub.measure)
    _print_progress("composing")
    composing = compose.measure()
    _print_progress("conditions by expression")
    by_expression = expressions.measure()
    _print_progress(f"an operator with {operator.CONFIGS} SentinelConfigs")
    of_operator = await operator.measure()
    _print_progress("a drift sidecar")
    of_drift = await drift.measure()
    _print_progress("KDL")
    of_kdl = kdl.measure()
    _print_progress("the small proxy")
    of_proxy = await proxy.measure()
    _print_progress(f"a hub with {hub.AGENTS:,} agents")
    of_hub = await hub.measure()
    _print_progress(f"rollouts to {rollouts.AGENTS:,} agents")
    of_rollouts = await rollouts.measure()
    _print_progress("an agent")
    of_agent = await agent.measure()
    _print_progress(f"{loop.RESOURCES:,} resources through the whole loop")
    whole_loop = await loop.measure()
    _print_progress("the reaction to a changed spec")
    of_reaction = await reaction.measure()
    _print_progress(f"{streams.READERS + 1:,} streams")
    of_streams = await streams.measure()
    _print_progress("memory of sentinel api")
    resident = await memory.measure()
    _print_progress("our implementations against libraries")
    against_libraries = await parts.measure()
    return Figures(
        machine=of_machine,
        shapes=shapes,
        pulses=pulses,
        at_typical_size=at_typical_size,
        with_fields=with_fields,
        rabbitmq=rabbitmq,
        pubsub=pubsub,
        composing=composing,
        expressions=by_expression,
        operator=of_operator,
        drift=of_drift,
        kdl=of_kdl,
        proxy=of_proxy,
        hub=of_hub,
        rollouts=of_rollouts,
        agent=of_agent,
        api=await api.measure(_print_progress),
        streams=of_streams,
        memory=resident,
        parts=against_libraries,
        loop=whole_loop,
        reaction=of_reaction,
    )


def budgets(figures: Figures) -> list[Budget]:
    """Return all budgets."""
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
        *expressions.budgets(figures.expressions),
        *operator.budgets(figures.operator),
        *drift.budgets(figures.drift),
        *kdl.budgets(figures.kdl),
        *proxy.budgets(figures.proxy),
        *hub.budgets(figures.hub),
        *rollouts.budgets(figures.rollouts),
        *agent.budgets(figures.agent),
        *api.budgets(figures.api),
        *streams.budgets(figures.streams),
        *memory.budgets(figures.memory),
        *parts.budgets(figures.parts, report_microseconds=figures.api.reports[0].together.server),
        *loop.budgets(figures.loop),
        *reaction.budgets(figures.reaction),
    ]


def page(figures: Figures) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Performance\n",
        "<!-- Written by `make bench`. -->\n",
        "Measured on one machine, on loopback, with a real RabbitMQ, Google's Pub/Sub emulator and a server in",
        "another process; resources of 1.8 kB. CPU is that of the Sentinel process alone. *The whole pulse* is",
        "all that the kernel charges to a `sentinel run` process with its log at level `info`: fetching,",
        "deciding, composing, publishing and logging, with nothing left out. The rows on publishing and composing",
        "are parts of it, measured alone. They do not add up to the whole.\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}.\n",
        "| what | measured | budget |",
        "|---|---|---|",
        *(f"| {budget} |" for budget in budgets(figures)),
        "\n## By size of the fleet\n",
        f"Nothing due and nothing changed since the last poll, pages of {pulse.LARGE_PAGE}.\n",
        *table(
            ("resources", "CPU per resource", "peak memory"),
            (
                (f"{one.resources:,}", f"{one.microseconds:.1f} µs", f"{one.peak_mebibytes:.0f} MiB")
                for one in figures.pulses
            ),
        ),
        *api.section(figures.api),
        *expressions.section(figures.expressions),
        *kdl.section(figures.kdl),
        *proxy.section(figures.proxy),
        *hub.section(figures.hub),
        *rollouts.section(figures.rollouts),
        *agent.section(figures.agent),
        *streams.section(figures.streams),
        *memory.section(figures.memory),
        *loop.section(figures.loop),
        *reaction.section(figures.reaction),
        *parts.section(figures.parts),
        *machine.section(figures.machine),
    ]
    return "\n".join(lines) + "\n"


def _print_progress(what: str) -> None:
    print(f"measuring {what} ...", flush=True)


def main() -> int:
    """Measure, write the page and print the budgets."""
    figures = asyncio.run(measure())
    PAGE.write_text(page(figures))
    return print_budgets(budgets(figures))


if __name__ == "__main__":
    sys.exit(main())

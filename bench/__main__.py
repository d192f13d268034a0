"""Measures the budgets and writes docs/reference/performance.md. Exits 1 if one is exceeded.

    python -m bench [TOPIC ...]

Figures are CPU per item, or ratios within one run, because wall time depends on the machine more than on the code.
With topics, such as `hub agent`, only their sections of the page are measured and replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from bench import (
    agent,
    api,
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
    pulse_fleets,
    reaction,
    rollouts,
    streams,
)
from bench.budget import Budget, print_budgets, print_progress, table
from bench.page import replace_sections

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"

Figures = TypeVar("Figures")


class Result(msgspec.Struct, frozen=True):
    """What was measured of a topic."""

    budgets: Sequence[Budget]
    lines: Sequence[str]
    """The section of the page, without the budgets."""


Topic: TypeAlias = Callable[[], Coroutine[Any, Any, Result]]


def _topic(
    measure: Callable[[], Figures | Coroutine[Any, Any, Figures]],
    budgets: Callable[[Figures], Sequence[Budget]],
    section: Callable[[Figures], Sequence[str]],
) -> Topic:
    async def measure_topic() -> Result:
        measured = measure()
        figures = await measured if isinstance(measured, Coroutine) else measured
        return Result(budgets(figures), section(figures))

    return measure_topic


def _only_heading(heading: str) -> Callable[[object], list[str]]:
    return lambda _: [f"\n## {heading}"]


async def _api() -> Result:
    """Measure the fleet API, its memory, and its parts, one of which has a share of a report as its budget."""
    of_api = await api.measure(print_progress)
    print_progress("memory of sentinel api")
    resident = await memory.measure()
    print_progress("our implementations against libraries")
    of_parts = await parts.measure()
    report = of_api.reports[0].together.server
    return Result(
        [
            *api.budgets(of_api),
            *memory.budgets(resident),
            *parts.budgets(of_parts, report_microseconds=report),
        ],
        [*api.section(of_api), *memory.section(resident), *parts.section(of_parts)],
    )


TOPICS: Mapping[str, Topic] = {
    "pulse": _topic(pulse_fleets.measure, pulse_fleets.budgets, pulse_fleets.section),
    "operator": _topic(operator.measure, operator.budgets, _only_heading("The operator")),
    "drift": _topic(drift.measure, drift.budgets, _only_heading("The drift sidecar")),
    "expressions": _topic(expressions.measure, expressions.budgets, expressions.section),
    "kdl": _topic(kdl.measure, kdl.budgets, kdl.section),
    "proxy": _topic(proxy.measure, proxy.budgets, proxy.section),
    "hub": _topic(hub.measure, hub.budgets, hub.section),
    "rollouts": _topic(rollouts.measure, rollouts.budgets, rollouts.section),
    "agent": _topic(agent.measure, agent.budgets, agent.section),
    "loop": _topic(loop.measure, loop.budgets, loop.section),
    "reaction": _topic(reaction.measure, reaction.budgets, reaction.section),
    "streams": _topic(streams.measure, streams.budgets, streams.section),
    "api": _api,
}
"""The sections of the page, in order."""


async def measure(topics: Sequence[str]) -> list[Budget]:
    """Measure topics, each replacing its section of the page as soon as it is measured. Returns their budgets."""
    found: list[Budget] = []
    for name in topics:
        print_progress(name)
        of_machine = machine.measure()
        result = await TOPICS[name]()
        found += result.budgets
        lines = [*result.lines, *_budget_lines(result.budgets), _conditions(of_machine)]
        PAGE.write_text(replace_sections(PAGE.read_text(), {name: lines}, list(TOPICS)))
    return found


def _budget_lines(budgets: Sequence[Budget]) -> list[str]:
    return ["", *table(("what", "measured", "budget"), [str(budget).split(" | ") for budget in budgets])]


def _conditions(of_machine: Mapping[str, float]) -> str:
    """Return the line that says when and on what machine a section was measured."""
    reference = ", ".join(f"{what} {microseconds:.1f} µs" for what, microseconds in of_machine.items())
    return (
        f"\nMeasured on {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}. On this machine: {reference}."
    )


def main() -> int:
    """Measure, write the page and print the budgets."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the budgets.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=", ".join(TOPICS))
    topics = parser.parse_args().topics
    if unknown := [name for name in topics if name not in TOPICS]:
        parser.error(f"expected topics of {', '.join(TOPICS)}, got {', '.join(unknown)}")
    return print_budgets(asyncio.run(measure(topics or list(TOPICS))))


if __name__ == "__main__":
    sys.exit(main())

"""The resident memory of `sentinel api` after startup, and after one list.

    python -m tools.services postgresql -- python -m bench.memory

This is the memory of an idle server, mostly of its libraries. Peaks under load are in `bench.api`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from bench.budget import Budget, print_budgets, table
from bench.processes import Memory
from bench.testbed import PAGE_SIZE, DatabaseName, Testbed, open_testbed

RESIDENT_BUDGET = 80.0
"""MiB, after a list."""

_RESOURCES = 1_000
_PROCESSES = 3


class MemoryFigures(msgspec.Struct, frozen=True):
    """The memory of a server on one database.

    Each figure is the minimum of several processes, because allocation depends on timing.
    """

    database: DatabaseName
    started: Memory
    """Listening, without a request."""
    listed: Memory
    """After one list of 500 resources."""


async def measure() -> list[MemoryFigures]:
    """Measure both databases."""
    found: list[MemoryFigures] = []
    for name in DatabaseName:
        async with open_testbed(name) as testbed:
            await testbed.create_template()
            await testbed.cloning.clone(testbed.template, first=1, end=_RESOURCES)
            started, listed = zip(*[await _measure_process(testbed) for _ in range(_PROCESSES)], strict=True)
            found.append(MemoryFigures(name, _minimum(started), _minimum(listed)))
    return found


def budgets(figures: Sequence[MemoryFigures]) -> list[Budget]:
    return [
        Budget(
            f"`sentinel api` on {one.database}: resident memory after a list",
            one.listed.resident,
            "MiB",
            RESIDENT_BUDGET,
        )
        for one in figures
    ]


def section(figures: Sequence[MemoryFigures]) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## Memory of `sentinel api`\n",
        f"Resident memory, and the proportional share in brackets; the minimum of {_PROCESSES} processes.\n",
        *table(
            ("database", "after startup", "after a list of 500"),
            ((one.database, one.started, one.listed) for one in figures),
        ),
    ]


async def _measure_process(testbed: Testbed) -> tuple[Memory, Memory]:
    async with testbed.server() as server:
        started = server.memory()
        assert (await server.page()).size == PAGE_SIZE
        return started, server.memory()


def _minimum(measured: Sequence[Memory]) -> Memory:
    return min(measured, key=lambda one: one.resident)


def main() -> int:
    figures = asyncio.run(measure())
    print("\n".join(section(figures)))
    return print_budgets(budgets(figures))


if __name__ == "__main__":
    sys.exit(main())

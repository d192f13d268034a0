"""What `sentinel api` has resident in memory: after its start, and after it has answered a list.

    python -m tools.services postgresql -- python -m bench.memory

Peaks under load are in `bench.api`. This is what an idle server keeps, and so what its libraries weigh.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from bench import fleet_bed
from bench.budget import Budget
from bench.fleet_bed import PAGE_SIZE, DatabaseName
from bench.processes import Memory

RESIDENT_BUDGET = 80.0
"""MiB, after a list."""

_RESOURCES = 1_000
_PROCESSES = 3
"""Each is measured so often; the least counts, because allocation depends on timing."""


class MemoryFigures(msgspec.Struct, frozen=True):
    """On one database."""

    database: DatabaseName
    started: Memory
    """It listens and has answered nothing."""
    listed: Memory
    """It has answered one list of 500 resources."""


async def measure() -> list[MemoryFigures]:
    """Measures both databases."""
    found: list[MemoryFigures] = []
    for name in DatabaseName:
        async with fleet_bed.bed(name) as bed:
            await bed.plant()
            await bed.cloning.clone(bed.template, first=1, end=_RESOURCES)
            started, listed = zip(*[await _one(bed) for _ in range(_PROCESSES)], strict=True)
            found.append(MemoryFigures(name, _least(started), _least(listed)))
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
    """What belongs on the page of figures, in Markdown."""
    return [
        "\n## Memory of `sentinel api`\n",
        f"Resident, and in brackets the proportional share; the least of {_PROCESSES} processes.\n",
        "| database | after its start | after a list of 500 |",
        "|---|---|---|",
        *(f"| {one.database} | {one.started} | {one.listed} |" for one in figures),
    ]


async def _one(bed: fleet_bed.Bed) -> tuple[Memory, Memory]:
    async with bed.server() as server:
        started = server.memory()
        assert (await server.page()).size == PAGE_SIZE
        return started, server.memory()


def _least(measured: Sequence[Memory]) -> Memory:
    return min(measured, key=lambda one: one.resident)


def main() -> int:
    """Measures this alone, and prints it."""
    figures = asyncio.run(measure())
    print("\n".join(section(figures)))
    shown = budgets(figures)
    for budget in shown:
        print(f"{'ok  ' if budget.is_kept else 'OVER'} {budget}")
    return 0 if all(budget.is_kept for budget in shown) else 1


if __name__ == "__main__":
    sys.exit(main())

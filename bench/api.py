"""The fleet API, whole: server CPU per resource of lists, per report, and peak memory, at growing fleets.

The process under test is the one that users run, on SQLite and on PostgreSQL. What is measured is its own CPU
time, as the kernel counts it; that of PostgreSQL's processes is shown beside it, because somebody pays for it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from bench import fleet_bed
from bench.budget import Budget
from bench.fleet_bed import ADAPTERS, Bed, Cost, DatabaseName
from bench.fleet_rows import REGION
from sentinel.core.pulse.observation import PLAIN_FIELDS

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TYPICAL = 100_000

LIST_BUDGET = 3.0
_LISTERS = 4
REPORT_BUDGET = 1_000.0
MEBIBYTES_BUDGET = 150.0
FLAT = 1.25
"""How much more a resource may cost on the last page, or in the largest fleet, than at its cheapest."""

_ROUNDS = 25
"""How often everything is measured, one after the other; a figure is the cheapest of its own. Whatever else the
machine does can only add to it, and does so for seconds on end."""
_PAGES = 25
"""How many pages are fetched for a figure in each."""
_REPORTS = 2_000
_REPORT_ROUNDS = 3
_REPORTERS = 32


class ListFigures(msgspec.Struct, frozen=True):
    """What lists of one fleet cost, a resource."""

    database: DatabaseName
    resources: int
    first: Cost
    """The first page, with the total."""
    last: Cost
    """The last page, by the cursor."""
    walk: Cost
    """Every page, one after the other."""
    fields: Cost
    """The same with just the fields that a pulse reads."""
    filtered: Cost
    """A tenth of the fleet, selected by a label."""
    peak_mebibytes: float
    """Of the server, after all of these."""


class ReportFigures(msgspec.Struct, frozen=True):
    """What a report costs: checked, stored, aggregated, audited, committed, answered."""

    database: DatabaseName
    together: Cost
    """Of many reporters at once, who share the wait for the disk."""
    alone: Cost
    """Of one reporter, who waits for each."""


class ApiFigures(msgspec.Struct, frozen=True):
    """Everything that was measured of the fleet API."""

    lists: Sequence[ListFigures]
    reports: Sequence[ReportFigures]


async def measure(say: Callable[[str], None], *, sizes: Sequence[int] = SIZES) -> ApiFigures:
    """Measures both databases, at growing sizes of one fleet."""
    lists: list[ListFigures] = []
    reports: list[ReportFigures] = []
    for name in DatabaseName:
        async with fleet_bed.bed(name) as bed:
            await bed.plant()
            for before, size in zip((1, *sizes), sizes, strict=False):
                say(f"lists of {size:,} on {name}")
                await bed.cloning.clone(bed.template, first=before, end=size)
                lists.append(await _lists(bed, size))
                if size == TYPICAL or size == sizes[-1] < TYPICAL:
                    say(f"reports among {size:,} on {name}")
                    reports.append(await _reports(bed))
    return ApiFigures(lists, reports)


def budgets(figures: ApiFigures) -> list[Budget]:
    """What the fleet API may cost, beside what it does."""
    of = {(one.database, one.resources): one for one in figures.lists}
    largest = max(one.resources for one in figures.lists)
    shown: list[Budget] = []
    for name in DatabaseName:
        typical, large, small = of[name, TYPICAL], of[name, largest], of[name, SIZES[1]]
        shown += [
            Budget(
                f"list on {name}: server CPU a resource at {TYPICAL:,}", typical.walk.server, "µs", LIST_BUDGET
            ),
            Budget(
                f"list on {name}: the last page against the first, of {largest:,}",
                large.last.server / large.first.server,
                "×",
                FLAT,
            ),
            Budget(
                f"list on {name}: growth of that CPU from {SIZES[1]:,} to {largest:,}",
                large.walk.server / small.walk.server,
                "×",
                FLAT,
            ),
            Budget(
                f"list on {name}: peak memory while {largest:,} are listed",
                large.peak_mebibytes,
                "MiB",
                MEBIBYTES_BUDGET,
            ),
        ]
    shown += [
        Budget(
            f"report on {one.database}: server CPU, aggregated and committed",
            one.together.server,
            "µs",
            REPORT_BUDGET,
        )
        for one in figures.reports
    ]
    return shown


def section(figures: ApiFigures) -> list[str]:
    """What belongs on the page of figures, in Markdown."""
    return [
        "\n## The fleet API\n",
        f"Server CPU a resource, in pages of 500, the cheapest of {_ROUNDS} rounds; behind the plus, that of",
        "PostgreSQL's own processes.",
        "*Fields* are those that a pulse reads; *filtered* is a tenth of the fleet, by a label.\n",
        "| database | resources | first page | last page | every page | fields | filtered | peak memory |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {one.database} | {one.resources:,} | {one.first} | {one.last} | {one.walk} | {one.fields} "
            f"| {one.filtered} | {one.peak_mebibytes:.0f} MiB |"
            for one in figures.lists
        ),
        f"\nReports, of {_REPORTERS} adapters at once, and of one that waits for each answer.\n",
        "| database | CPU a report, at once | reports per CPU-second | CPU a report, alone |",
        "|---|---|---|---|",
        *(
            f"| {one.database} | {one.together} | {1e6 / one.together.server:,.0f} | {one.alone} |"
            for one in figures.reports
        ),
    ]


async def _lists(bed: Bed, size: int) -> ListFigures:
    async with bed.server() as server:
        assert (await server.page()).total == size
        # Several at once: every reader of the database then has its memory.
        end, *_ = await asyncio.gather(*(server.last_cursor() for _ in range(_LISTERS)))

        async def again(after: str) -> int:
            return sum([(await server.page(after)).size for _ in range(_PAGES)])

        whole = server.walk()
        picking = server.walk(fields=",".join(PLAIN_FIELDS))
        filtering = server.walk(labels=f"region={REGION}")
        works = (
            lambda: again(""),
            lambda: again(end),
            lambda: whole.go_on(_PAGES),
            lambda: picking.go_on(_PAGES),
            lambda: filtering.go_on(_PAGES),
        )
        first, last, walk, fields, filtered = await server.costs(works, rounds=_ROUNDS)
        return ListFigures(
            database=bed.name,
            resources=size,
            first=first,
            last=last,
            walk=walk,
            fields=fields,
            filtered=filtered,
            peak_mebibytes=server.peak_mebibytes(),
        )


async def _reports(bed: Bed) -> ReportFigures:
    async with bed.server() as server:
        found = await server.paths(_REPORTS // len(ADAPTERS))
        some = found[: len(found) // 4]

        async def reports(paths: Sequence[str], reporters: int) -> int:
            waiting = iter([(path, adapter) for path in paths for adapter in ADAPTERS])

            async def reporter() -> None:
                for path, adapter in waiting:
                    await server.report(path, adapter)

            async with asyncio.TaskGroup() as group:
                for _ in range(reporters):
                    group.create_task(reporter())
            return len(paths) * len(ADAPTERS)

        works = (lambda: reports(found, _REPORTERS), lambda: reports(some, 1))
        together, alone = await server.costs(works, rounds=_REPORT_ROUNDS)
        return ReportFigures(database=bed.name, together=together, alone=alone)

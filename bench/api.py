"""The fleet API: server CPU per listed resource and per report, and peak memory, by size of the fleet.

The process under test is `sentinel api`, on SQLite and on PostgreSQL. The figures are its CPU time as the kernel
counts it. The CPU time of PostgreSQL's processes is shown separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from bench.budget import Budget, table
from bench.fleet_rows import REGION
from bench.testbed import ADAPTERS, Cost, DatabaseName, Testbed, open_testbed
from sentinel.core.pulse.observation import PLAIN_FIELDS

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TYPICAL = 100_000

LIST_BUDGET = 3.0
FIELDS_BUDGET = 4.0
FILTERED_BUDGET = 5.0
_CONCURRENT_LISTS = 4
REPORT_BUDGET = 1_000.0
MEBIBYTES_BUDGET = 150.0
FLAT = 1.25
"""The limit for the cost of a resource on the last page, or in the largest fleet, relative to the cheapest."""

_ROUNDS = 60
_PAGES_PER_ROUND = 10
_REPORTS = 2_000
_REPORT_ROUNDS = 3
_REPORTERS = 32


class ListFigures(msgspec.Struct, frozen=True):
    """The cost of lists of one fleet, per resource.

    Each figure is the cheapest of many rounds: other load on the machine only adds to it, for seconds at a time.
    """

    database: DatabaseName
    resources: int
    first: Cost
    """The first page, with the total."""
    last: Cost
    """The last page, by cursor."""
    walk: Cost
    """Every page, one after the other."""
    fields: Cost
    """The same with only the fields that a pulse reads."""
    filtered: Cost
    """A tenth of the fleet, selected by a label."""
    peak_mebibytes: float
    """Of the server, after all of these."""


class ReportFigures(msgspec.Struct, frozen=True):
    """The cost of a report, from request to response.

    Concurrent reporters share disk syncs. One alone waits for each response.
    """

    database: DatabaseName
    together: Cost
    alone: Cost
    by_expression: Cost
    """Concurrent reports on resources whose conditions are by expression."""


class ApiFigures(msgspec.Struct, frozen=True):
    """All measurements of the fleet API."""

    lists: Sequence[ListFigures]
    reports: Sequence[ReportFigures]


async def measure(print_progress: Callable[[str], None], *, sizes: Sequence[int] = SIZES) -> ApiFigures:
    """Measure both databases at growing sizes of one fleet."""
    lists: list[ListFigures] = []
    reports: list[ReportFigures] = []
    for name in DatabaseName:
        async with open_testbed(name) as testbed:
            await testbed.create_template()
            for before, size in zip((1, *sizes), sizes, strict=False):
                print_progress(f"lists of {size:,} on {name}")
                await testbed.cloning.clone(testbed.template, first=before, end=size)
                lists.append(await _lists(testbed, size))
                if size == TYPICAL or size == sizes[-1] < TYPICAL:
                    print_progress(f"reports among {size:,} on {name}")
                    reports.append(await _reports(testbed))
    return ApiFigures(lists, reports)


def budgets(figures: ApiFigures) -> list[Budget]:
    """Return the budgets of the fleet API."""
    of = {(one.database, one.resources): one for one in figures.lists}
    largest = max(one.resources for one in figures.lists)
    shown: list[Budget] = []
    for name in DatabaseName:
        typical, large, small = of[name, TYPICAL], of[name, largest], of[name, SIZES[1]]
        shown += [
            Budget(
                f"list on {name}: server CPU per resource at {TYPICAL:,}", typical.walk.server, "µs", LIST_BUDGET
            ),
            Budget(f"the same on {name} with `fields`", typical.fields.server, "µs", FIELDS_BUDGET),
            Budget(f"the same on {name} by a label", typical.filtered.server, "µs", FILTERED_BUDGET),
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
    for report in figures.reports:
        what = f"report on {report.database}: server CPU, aggregated and committed"
        shown += [
            Budget(what, report.together.server, "µs", REPORT_BUDGET),
            Budget(f"{what}, by expression", report.by_expression.server, "µs", REPORT_BUDGET),
        ]
    shown += [
        Budget(f"a sequential report on {report.database}: server CPU", report.alone.server, "µs", REPORT_BUDGET)
        for report in figures.reports
        if report.database is DatabaseName.SQLITE
    ]
    return shown


def section(figures: ApiFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## The fleet API\n",
        f"Server CPU per resource, in pages of 500, the cheapest of {_ROUNDS} rounds. After the plus: the CPU of",
        "PostgreSQL's processes.",
        "*Fields* are those that a pulse reads; *filtered* is a tenth of the fleet, by a label.\n",
        *table(
            (
                "database",
                "resources",
                "first page",
                "last page",
                "every page",
                "fields",
                "filtered",
                "peak memory",
            ),
            (
                (
                    *(one.database, f"{one.resources:,}", one.first, one.last, one.walk, one.fields, one.filtered),
                    f"{one.peak_mebibytes:.0f} MiB",
                )
                for one in figures.lists
            ),
        ),
        f"\nReports of {_REPORTERS} concurrent adapters, and of one that waits for each response.\n",
        *table(
            (
                "database",
                "CPU per report, concurrent",
                "reports per CPU-second",
                "CPU per report, sequential",
                "concurrent, conditions by expression",
            ),
            (
                (one.database, one.together, f"{1e6 / one.together.server:,.0f}", one.alone, one.by_expression)
                for one in figures.reports
            ),
        ),
    ]


async def _lists(testbed: Testbed, size: int) -> ListFigures:
    async with testbed.server() as server:
        assert (await server.page()).total == size
        # Several at once, so that every reader of the database has allocated its memory.
        end, *_ = await asyncio.gather(*(server.last_cursor() for _ in range(_CONCURRENT_LISTS)))

        async def repeat(after: str) -> int:
            return sum([(await server.page(after)).size for _ in range(_PAGES_PER_ROUND)])

        whole = server.walk()
        picking = server.walk(fields=",".join(PLAIN_FIELDS))
        filtering = server.walk(labels=f"region={REGION}")
        works = {
            "first": lambda: repeat(""),
            "last": lambda: repeat(end),
            "walk": lambda: whole.advance(_PAGES_PER_ROUND),
            "fields": lambda: picking.advance(_PAGES_PER_ROUND),
            "filtered": lambda: filtering.advance(_PAGES_PER_ROUND),
        }
        costs = await server.costs(list(works.values()), rounds=_ROUNDS)
        return ListFigures(
            database=testbed.name,
            resources=size,
            peak_mebibytes=server.peak_mebibytes(),
            **dict(zip(works, costs, strict=True)),
        )


async def _reports(testbed: Testbed) -> ReportFigures:
    async with testbed.server(with_expressions=True) as server:
        found = await server.paths(_REPORTS // len(ADAPTERS))
        some = found[: len(found) // 4]
        sites = await server.create_sites(len(found))

        async def reports(paths: Sequence[str], reporters: int) -> int:
            waiting = iter([(path, adapter) for path in paths for adapter in ADAPTERS])

            async def reporter() -> None:
                for path, adapter in waiting:
                    await server.report(path, adapter)

            async with asyncio.TaskGroup() as group:
                for _ in range(reporters):
                    group.create_task(reporter())
            return len(paths) * len(ADAPTERS)

        works = (
            lambda: reports(found, _REPORTERS),
            lambda: reports(some, 1),
            lambda: reports(sites, _REPORTERS),
        )
        together, alone, by_expression = await server.costs(works, rounds=_REPORT_ROUNDS)
        return ReportFigures(database=testbed.name, together=together, alone=alone, by_expression=by_expression)

"""Our own implementations against the libraries that exist, as ratios within one run.

    python -m tools.services postgresql -- python -m bench.parts

An implementation that is not clearly cheaper than its library is replaced by the library.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping

import msgspec

from bench import parts_json, parts_postgresql, parts_sqlite
from bench.alternating import OURS, SQLALCHEMY
from bench.budget import Budget, print_budgets, table
from bench.parts_json import JsonFigures
from bench.parts_postgresql import BARE_POOL, PostgresqlFigures
from bench.parts_sqlite import EXECUTOR, SqliteFigures

WRITE_BUDGET = 0.5
POOL_BUDGET = 0.85
STATEMENT_BUDGET = 0.85
CHECK_BUDGET = 0.03


class PartsFigures(msgspec.Struct, frozen=True):
    """The cost of each part, by implementation.

    Only ratios within one run have budgets, because the machine affects all implementations alike.
    """

    sqlite: SqliteFigures
    postgresql: PostgresqlFigures
    json: JsonFigures


async def measure() -> PartsFigures:
    return PartsFigures(
        sqlite=await parts_sqlite.measure(),
        postgresql=await parts_postgresql.measure(),
        json=await parts_json.measure(),
    )


def budgets(figures: PartsFigures, *, report_microseconds: float) -> list[Budget]:
    """Return the budgets. `report_microseconds` is the server's cost of a whole report."""
    sqlite, postgresql = figures.sqlite, figures.postgresql
    writes = "worker threads on SQLite: 32 concurrent writes, against an executor"
    pool = "connection pool for PostgreSQL: one use, against asyncpg's without reset"
    statements = {
        "SQLite: read": sqlite.read_statement,
        "SQLite: update": sqlite.update_statement,
        "PostgreSQL: read": postgresql.read_statement,
        "PostgreSQL: update": postgresql.update_statement,
    }
    return [
        _ratio(writes, sqlite.writes_together, EXECUTOR, WRITE_BUDGET),
        _ratio(pool, postgresql.pool, BARE_POOL, POOL_BUDGET),
        *(
            _ratio(
                f"compiled statements on {what} by id, against SQLAlchemy", variants, SQLALCHEMY, STATEMENT_BUDGET
            )
            for what, variants in statements.items()
        ),
        Budget(
            "strict JSON: its share of a report's CPU on SQLite",
            figures.json.check_microseconds / report_microseconds,
            "×",
            CHECK_BUDGET,
        ),
    ]


def section(figures: PartsFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## Our implementations against libraries\n",
        "CPU of the process, in alternating turns, the cheapest turn of each. A write reads a document of 1.8 kB,",
        "writes it back, appends to a log and commits. A page is 500 such documents.\n",
        *table(("what", "ours", "other ways"), _rows(figures)),
    ]


def _rows(figures: PartsFigures) -> Iterator[tuple[str, str, str]]:
    sqlite, postgresql, json = figures.sqlite, figures.postgresql, figures.json
    for what, variants in (
        ("a write on SQLite, 32 concurrent", sqlite.writes_together),
        ("a write on SQLite, sequential", sqlite.writes_alone),
        ("a page from SQLite, 4 concurrent", sqlite.reads),
        ("a read by id on SQLite", sqlite.read_statement),
        ("an update by id on SQLite", sqlite.update_statement),
        ("a connection to PostgreSQL, used for one row", postgresql.pool),
        ("a read by id on PostgreSQL", postgresql.read_statement),
        ("an update by id on PostgreSQL", postgresql.update_statement),
        ("the body of a report, checked and decoded", json.report),
        ("the body of a creation, checked and decoded", json.creation),
    ):
        others = ", ".join(f"{name} {figure:.1f} µs" for name, figure in variants.items() if name != OURS)
        yield what, f"{variants[OURS]:.1f} µs", others


def _ratio(what: str, variants: Mapping[str, float], other: str, limit: float) -> Budget:
    return Budget(what, variants[OURS] / variants[other], "×", limit)


def main() -> int:
    """Measure and print. The cost of a report is assumed to be its budget, a millisecond."""
    figures = asyncio.run(measure())
    print("\n".join(section(figures)))
    return print_budgets(budgets(figures, report_microseconds=1_000.0))


if __name__ == "__main__":
    sys.exit(main())

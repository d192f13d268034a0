"""How a database runs a statement. For PostgreSQL these are generic plans, which it uses for what runs often."""

from __future__ import annotations

import sqlite3
from typing import Any

from sentinel.drivers.sql.engine.statements import Statement


def explain_on_sqlite(connection: sqlite3.Connection, statement: Statement) -> str:
    """Return the plan of a statement."""
    compiled = statement.sqlite
    count = compiled.text.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", [None] * count)
    return "\n".join(row[3] for row in rows)


async def explain_on_postgresql(connection: Any, statement: Statement) -> str:
    """Return the generic plan of a statement. The connection has `plan_cache_mode = force_generic_plan`."""
    # Prepared, because plain EXPLAIN would plan for these values.
    await connection.execute(f"PREPARE explained AS {statement.postgresql.text}")
    count = await connection.fetchval(
        "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'explained'"
    )
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    rows = await connection.fetch(f"EXPLAIN EXECUTE explained {values}")
    await connection.execute("DEALLOCATE explained")
    return "\n".join(row[0] for row in rows)

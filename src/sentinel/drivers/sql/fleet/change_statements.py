"""Statements of the log of changes.

The number of a change must let a reader find out what it has not seen. SQLite has one writer, so its numbers are
consecutive in the order of commits. They are at least the time in microseconds, so that no number is used twice
when a backup is restored. In PostgreSQL the number is that of the transaction, which costs no lock. Transactions
commit in another order than that of their numbers, but a snapshot of the database tells which of them it includes.
The alternative, a counter that every transaction increments, would make each commit wait for the one before it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import CTE, bindparam, insert, select, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sentinel.drivers.sql.engine.columns import NUMBER
from sentinel.drivers.sql.engine.statements import Statement
from sentinel.drivers.sql.fleet.tables import changes, resources

CURRENT_BATCH: Final = 16
"""How many resources one statement reads: few enough that their documents fit into memory."""


class _Number(FunctionElement[int]):
    """The number of a new change. Its argument is the time."""

    type = NUMBER
    inherit_cache = True


@compiles(_Number, "sqlite")
def _number_on_sqlite(element: _Number, compiler: Any, **options: Any) -> str:
    newest = "coalesce((SELECT max(number) FROM fleet_changes), 0)"
    return f"max({newest} + 1, {compiler.process(element.clauses, **options)})"


@compiles(_Number, "postgresql")
def _number_on_postgresql(element: _Number, compiler: Any, **options: Any) -> str:
    return "pg_current_xact_id()::text::bigint"


# Prefixed, because one statement may write a change, an audit entry and a resource.
_time = bindparam("change_time", type_=NUMBER)
_VALUES = {
    "number": _Number(_time),
    **{
        name: bindparam(f"change_{name}", type_=changes.c[name].type)
        for name in ("resource_id", "plural", "parent")
    },
    "may_leave": bindparam("change_may_leave", type_=changes.c.may_leave.type),
    "time": _time,
}

INSERT = Statement(insert(changes).inline().from_select(list(_VALUES), select(*_VALUES.values())))


def insert_for_each_row_of(written: CTE) -> CTE:
    """Insert a change for each row that another part of the statement returns."""
    rows = select(*_VALUES.values()).select_from(written)
    inserted = insert(changes).inline().from_select(list(_VALUES), rows)
    return inserted.returning(changes.c.number).cte("logged")


# One row without a change, or one per change. The snapshot is the one that the statement itself reads from.
# Changes with a higher number were restored from a dump of another server. After a failover it is another log,
# because the last transactions may be lost: the timeline is in the name of the WAL file.
READ_ON_POSTGRESQL = Statement(
    text(
        """
        SELECT
            log.id || (SELECT ' ' || oid || ' ' FROM pg_database WHERE datname = current_database())
                || left(pg_walfile_name(pg_current_wal_lsn()), 8),
            log.expired,
            pg_current_snapshot()::text,
            change.*
        FROM fleet_change_log AS log LEFT JOIN (
            (
                SELECT number, resource_id, plural, parent, may_leave FROM fleet_changes
                WHERE number >= :next AND number < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
                ORDER BY number LIMIT :limit
            )
            UNION ALL
            SELECT number, resource_id, plural, parent, may_leave FROM fleet_changes
            WHERE number = ANY (string_to_array(:open, ',')::bigint[])
        ) AS change ON true
        ORDER BY change.number
        """
    )
)
HEAD_ON_SQLITE = Statement(
    text("SELECT id, expired, coalesce((SELECT max(number) FROM fleet_changes), 0) FROM fleet_change_log")
)
EXISTS = Statement(select(changes.c.number).where(changes.c.number == bindparam("number")).limit(1))
READ_ON_SQLITE = Statement(
    text(
        "SELECT number, resource_id, plural, parent, may_leave FROM fleet_changes "
        "WHERE number >= :next ORDER BY number LIMIT :limit"
    )
)
READ_TRANSACTION = Statement(
    select(changes.c.number, changes.c.resource_id, changes.c.plural, changes.c.parent, changes.c.may_leave).where(
        changes.c.number == bindparam("number")
    )
)

CURRENT = Statement(
    select(resources.c.id, resources.c.plural, resources.c.parent, resources.c.labels, resources.c.document).where(
        resources.c.id.in_([bindparam(f"id_{index}") for index in range(CURRENT_BATCH)])
    )
)

LAST_EXPIRED = Statement(
    text(
        "SELECT max(number) FROM (SELECT number, time FROM fleet_changes ORDER BY number LIMIT :limit) AS oldest "
        "WHERE time < :before AND number < (SELECT max(number) FROM fleet_changes)"
    )
)
"""The highest number of the oldest changes that have expired."""
NOTE_EXPIRED = Statement(
    text("UPDATE fleet_change_log SET expired = :expired WHERE expired < :expired"),
)
EXPIRE = Statement(text("DELETE FROM fleet_changes WHERE number <= :expired"))

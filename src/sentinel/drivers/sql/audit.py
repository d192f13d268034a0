"""The audit in SQL: one table for all components, written in their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache

import sqlalchemy as sa

from sentinel.core.access import Role
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, from_micros, required, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.ports.audit import AuditEntry, AuditQuery

metadata = sa.MetaData()

entries = sa.Table(
    "audit_entries",
    metadata,
    sa.Column("id", TEXT, nullable=False),
    sa.Column("time", NUMBER, nullable=False),
    *required(TEXT, "actor", "role", "address", "action", "kind", "resource_id", "request_id", "detail"),
    # No index by time: the ids sort by time.
    sa.PrimaryKeyConstraint("id", name="audit_entries_id"),
    sa.Index("audit_entries_by_actor", "actor", "id"),
    sa.Index("audit_entries_by_action", "action", "id"),
    sa.Index("audit_entries_by_resource", "resource_id", "id"),
    sqlite_with_rowid=False,
)

# Prefixed, because one statement may write an entry and a row of a component's table.
_PARAMETERS = {column.name: sa.bindparam(f"audit_{column.name}", type_=column.type) for column in entries.c}
_FILTERS = ("actor", "action", "resource_id")

RECORD = Statement(sa.insert(entries).inline().values(_PARAMETERS))

_before = sa.bindparam("before", type_=NUMBER)
_oldest = sa.select(entries.c.id).order_by(entries.c.id).limit(sa.bindparam("limit"))
_EXPIRE = Statement(sa.delete(entries).where(entries.c.time < _before, entries.c.id.in_(_oldest)))


def insert_with(*changes: sa.CTE) -> sa.Insert:
    """A statement that makes these changes and inserts an entry."""
    return sa.insert(entries).inline().values(_PARAMETERS).add_cte(*changes)


def insert_for_each_row_of(change: sa.CTE, *others: sa.CTE) -> sa.Insert:
    """A statement that makes a change and inserts an entry for each row that the change returns.

    It also makes the other changes.
    """
    rows = sa.select(*_PARAMETERS.values()).select_from(change)
    return sa.insert(entries).inline().from_select(list(_PARAMETERS), rows).add_cte(*others)


def values(entry: AuditEntry) -> dict[str, SqlValue]:
    """The parameters of these statements for an entry."""
    return {
        "audit_id": entry.id,
        "audit_time": to_micros(entry.time),
        "audit_actor": entry.actor,
        "audit_role": entry.role,
        "audit_address": entry.address,
        "audit_action": entry.action,
        "audit_kind": entry.kind,
        "audit_resource_id": entry.resource_id,
        "audit_request_id": entry.request_id,
        "audit_detail": entry.detail,
    }


class SqlAuditLog:
    """`ports.audit.AuditLog` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def find(self, query: AuditQuery) -> Sequence[AuditEntry]:
        filters = {name: value for name in ("before", *_FILTERS) if (value := getattr(query, name))}
        statement = _page(tuple(filters))
        found = await self._database.read(lambda session: session.rows(statement, limit=query.limit, **filters))
        return [_entry(row) for row in found]

    async def expire(self, before: datetime, *, limit: int) -> int:
        def delete_oldest(session: Session) -> int:
            return session.run(_EXPIRE, before=to_micros(before), limit=limit)

        return await self._database.write(delete_oldest)


@cache
def _page(filters: tuple[str, ...]) -> Statement:
    wanted = [entries.c[name] == sa.bindparam(name) for name in filters if name in _FILTERS]
    if "before" in filters:
        wanted.append(entries.c.id < sa.bindparam("before"))
    return Statement(sa.select(entries).where(*wanted).order_by(entries.c.id.desc()).limit(sa.bindparam("limit")))


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        id=row[0],
        time=from_micros(row[1]),
        actor=row[2],
        role=Role(row[3]),
        address=row[4],
        action=row[5],
        kind=row[6],
        resource_id=row[7],
        request_id=row[8],
        detail=row[9],
    )

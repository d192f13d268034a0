"""The fleet store on SQL, for both SQLite and PostgreSQL. Their `SqlDatabase` hides the differences: how work gets
a session and a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ColumnElement, Table, bindparam, delete, func, select, tuple_, union_all

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.drivers.sql.engine.columns import NUMBER, from_micros, to_micros
from sentinel.drivers.sql.engine.statements import NeedsTransaction, Row, Session, SqlDatabase, Statement
from sentinel.drivers.sql.fleet import lists, rows
from sentinel.drivers.sql.fleet.change_log import CHANNEL
from sentinel.drivers.sql.fleet.lists import MAX_OFFSET
from sentinel.drivers.sql.fleet.optimistic import OptimisticTransaction
from sentinel.drivers.sql.fleet.tables import (
    counts,
    discarded,
    generations,
    resources,
    waits,
)
from sentinel.drivers.sql.fleet.transaction import READ, SqlFleetTransaction
from sentinel.ports.fleet_store import (
    FleetTransaction,
    ListQuery,
    ListResult,
    LongestWait,
    Population,
    StoredResource,
)

T = TypeVar("T")


def _newest_first(table: Table, column: ColumnElement[Any]) -> tuple[Statement, Statement]:
    """Statements for a page of one resource's rows, and for how many there are."""
    of_resource = table.c.resource_id == bindparam("resource_id")
    page = select(column).where(of_resource).order_by(table.c.id.desc())
    return (
        Statement(page.limit(bindparam("limit")).offset(bindparam("offset", type_=NUMBER))),
        Statement(select(func.count()).select_from(table).where(of_resource)),
    )


_DISCARDED = _newest_first(discarded, discarded.c.report)
_HISTORY = _newest_first(generations, generations.c.record)


def _outdated() -> Statement:
    """Two index ranges, below and above the given adapters; `<>` would scan every resource."""
    sides = []
    for other in (resources.c.adapters < bindparam("adapters"), resources.c.adapters > bindparam("adapters")):
        side = (
            select(resources.c.id)
            .where(resources.c.plural == bindparam("plural"), other)
            .order_by(resources.c.adapters, resources.c.id)
            .limit(bindparam("limit"))
        )
        sides.append(select(side.subquery()))
    return Statement(union_all(*sides).limit(bindparam("limit")))


_OUTDATED = _outdated()
_POPULATIONS = Statement(
    select(counts.c.plural, counts.c.is_ready, func.sum(counts.c.total))
    .group_by(counts.c.plural, counts.c.is_ready)
    .order_by(counts.c.plural, counts.c.is_ready)
)
_NEXT_WAIT = Statement(
    select(waits.c.plural, waits.c.adapter, waits.c.since)
    .where(tuple_(waits.c.plural, waits.c.adapter) > tuple_(bindparam("plural"), bindparam("adapter")))
    .order_by(waits.c.plural, waits.c.adapter, waits.c.since)
    .limit(1)
)

_before: BindParameter[int] = bindparam("before")
_oldest_discarded = (
    select(discarded.c.id)
    .where(discarded.c.received_time < _before)
    .order_by(discarded.c.received_time)
    .limit(bindparam("limit"))
)
_oldest_generations = (
    select(generations.c.id)
    .where(generations.c.is_past.is_(True), generations.c.time < _before)
    .order_by(generations.c.time)
    .limit(bindparam("limit"))
)
_EXPIRE_DISCARDED = Statement(delete(discarded).where(discarded.c.id.in_(_oldest_discarded)))
_EXPIRE_HISTORY = Statement(delete(generations).where(generations.c.id.in_(_oldest_generations)))


class SqlFleetStore:
    """`ports.fleet_store.FleetStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        attempts: list[OptimisticTransaction | SqlFleetTransaction] = []

        def perform(transaction: OptimisticTransaction | SqlFleetTransaction) -> T:
            attempts.append(transaction)
            return transaction.perform(work)

        try:
            with suppress(NeedsTransaction):
                return await self._database.write_optimistically(
                    lambda session: perform(OptimisticTransaction(session))
                )
            return await self._database.write(lambda session: perform(SqlFleetTransaction(session)))
        finally:
            # After a failure or a cancellation too: the commit may have taken effect.
            if any(each.has_changes for each in attempts):
                self._database.announce(CHANNEL)

    async def get(self, resource_id: str) -> StoredResource | None:
        found = await self._database.read(lambda session: session.rows(READ, resource_id=resource_id))
        return rows.to_resource(found[0]) if found else None

    async def find(self, query: ListQuery) -> ListResult:
        return await self._database.read(lambda session: lists.find(session, query))

    async def discarded(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        found, total = await self._page(_DISCARDED, resource_id, limit=limit, offset=offset)
        return [rows.to_discarded(row) for row in found], total

    async def history(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        found, total = await self._page(_HISTORY, resource_id, limit=limit, offset=offset)
        return [rows.to_generation(row) for row in found], total

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        found = await self._database.read(
            lambda session: session.rows(_OUTDATED, plural=plural, adapters=adapters, limit=limit)
        )
        return [row[0] for row in found]

    async def populations(self) -> Sequence[Population]:
        found = await self._database.read(lambda session: session.rows(_POPULATIONS))
        return [
            Population(plural, bool(is_ready), int(total)) for plural, is_ready, total in found if int(total) > 0
        ]

    async def longest_waits(self) -> Sequence[LongestWait]:
        def skip_scan(session: Session) -> list[LongestWait]:
            # One index lookup per plural and adapter, however many resources wait.
            found: list[LongestWait] = []
            last = session.rows(_NEXT_WAIT, plural="", adapter="")
            while last:
                plural, adapter, since = last[0]
                found.append(LongestWait(plural, adapter, from_micros(since)))
                last = session.rows(_NEXT_WAIT, plural=plural, adapter=adapter)
            return found

        return await self._database.read(skip_scan)

    async def expire_discarded(self, before: datetime, *, limit: int) -> int:
        return await self._expire(_EXPIRE_DISCARDED, before, limit)

    async def expire_history(self, before: datetime, *, limit: int) -> int:
        return await self._expire(_EXPIRE_HISTORY, before, limit)

    async def _expire(self, statement: Statement, before: datetime, limit: int) -> int:
        return await self._database.write(
            lambda session: session.run(statement, before=to_micros(before), limit=limit)
        )

    async def _page(
        self, statements: tuple[Statement, Statement], resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[Row], int]:
        page, total = statements

        def read(session: Session) -> tuple[Sequence[Row], int]:
            found = session.rows(page, resource_id=resource_id, limit=limit, offset=min(offset, MAX_OFFSET))
            return found, int(session.rows(total, resource_id=resource_id)[0][0])

        return await self._database.read(read)

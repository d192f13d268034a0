"""The log of changes in memory.

It passes the same contract suite as SQLite and PostgreSQL. Its transactions commit in the order of their numbers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import Position
from sentinel.ports.change_log import ChangedResource, ChangePage, CurrentResource, PendingChanges
from sentinel.ports.fleet_store import StoredResource
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_tables import FleetTables

_LOG: Final = "00000000"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Row(NamedTuple):
    number: int
    resource: ChangedResource
    may_leave: bool
    time: datetime


class ChangeTable:
    """The rows of the log."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.last = 0
        """The number of the last transaction."""
        self.expired = 0
        self.listeners: list[asyncio.Event] = []

    def append(self, changes: Sequence[tuple[StoredResource | None, StoredResource | None]]) -> None:
        """Add the changes of a transaction: each resource before and after."""
        pending = PendingChanges()
        for before, after in changes:
            pending.note(before, after)
        if pending:
            self.last += 1
            time = max([self._newest_time, *(each.updated_time for _, each in changes if each is not None)])
            self.rows += [_Row(self.last, resource, may_leave, time) for resource, may_leave in pending.items()]
            for event in self.listeners:
                event.set()

    @property
    def newest(self) -> Position:
        return Position(_LOG, self.last + 1)

    def read(self, after: Position, limit: int) -> ChangePage:
        newest = self.newest
        change_position.check(after, newest=newest, expired=self.expired)
        start = bisect_left(self.rows, after.next, key=lambda row: row.number)
        found = self.rows[start : start + max(limit, 1)]
        rest = self.rows[start + len(found) :]
        found += [row for row in rest if row.number == found[-1].number]
        is_complete = not found or found[-1].number == self.last
        rows = [(row.number, row.resource, row.may_leave) for row in found]
        return ChangePage.of_rows(rows, after=after, newest=newest, is_complete=is_complete)

    def expire(self, before: datetime, limit: int) -> int:
        old = [row.number for row in self.rows[:limit] if row.time < before and row.number < self.last]
        if not old:
            return 0
        self.expired = max(old)
        count = len(self.rows)
        self.rows = [row for row in self.rows if row.number > self.expired]
        return count - len(self.rows)

    @property
    def _newest_time(self) -> datetime:
        """There is no clock here, and a removed resource does not know when it was removed."""
        return self.rows[-1].time if self.rows else _EPOCH


class MemoryChangeLog:
    """A verified fake of `ports.change_log.ChangeLog`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._table = database.tables(ChangeTable)
        self._fleet = database.tables(FleetTables)

    async def newest(self) -> Position:
        return await self._database.call("changes.newest", lambda: self._table.newest)

    async def read(self, after: Position, *, limit: int) -> ChangePage:
        return await self._database.call("changes.read", lambda: self._table.read(after, limit))

    async def current(self, resource_ids: Collection[str]) -> Mapping[str, CurrentResource]:
        def read() -> dict[str, CurrentResource]:
            found = [self._fleet.resources[each] for each in resource_ids if each in self._fleet.resources]
            return {
                each.id: CurrentResource(each.plural, each.parent, each.labels, each.document) for each in found
            }

        return await self._database.call("changes.current", read)

    async def expire(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("changes.expire", lambda: self._table.expire(before, limit))

    @asynccontextmanager
    async def wakeups(self) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self._table.listeners.append(event)
        try:
            yield event
        finally:
            self._table.listeners.remove(event)

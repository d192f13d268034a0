"""A fleet store in memory.

It passes the same contract suite as SQLite and PostgreSQL, so a test or simulation with it is valid for them. It
is stricter in one way, to expose bugs in its callers: changing a family without locking it is an error, where a
database would sometimes lose an update.

    database = MemoryDatabase()
    store = MemoryFleetStore(database)
    await database.open()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeAlias, TypeVar

import msgspec

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.ports.fleet_store import (
    FleetTransaction,
    IdTaken,
    ListQuery,
    ListResult,
    LongestWait,
    NameTaken,
    Population,
    StoredResource,
)
from sentinel.testing.change_log import ChangeTable
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_tables import FleetTables
from sentinel.testing.transaction import MemoryTransaction, transact

V = TypeVar("V")
T = TypeVar("T")

CommitListener: TypeAlias = Callable[[StoredResource | None, StoredResource | None], None]
"""Called at the commit, before any other task runs, with each changed resource before and after the transaction.
None means that the resource did not exist or was removed."""

_IMMUTABLE = ("plural", "name", "parent", "root", "created_time")
"""The fields that `update` does not change."""


class MemoryFleetStore:
    """A verified fake of `ports.fleet_store.FleetStore`."""

    def __init__(self, database: MemoryDatabase, *, on_commit: CommitListener | None = None) -> None:
        self._database = database
        self._on_commit = on_commit
        self._tables = database.tables(FleetTables)

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        return await transact(self._database, lambda: _Transaction(self._database, self._on_commit), work)

    async def get(self, resource_id: str) -> StoredResource | None:
        return await self._database.call("get", lambda: self._tables.resources.get(resource_id))

    async def find(self, query: ListQuery) -> ListResult:
        return await self._database.call("find", lambda: self._tables.find(query))

    async def discarded(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        reports = self._tables.discarded
        return await self._database.call("discarded", lambda: _newest(reports.get(resource_id, ()), limit, offset))

    async def history(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        records = self._tables.history
        return await self._database.call("history", lambda: _newest(records.get(resource_id, ()), limit, offset))

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        def read() -> list[str]:
            resources = self._tables.resources.values()
            outdated = (each.id for each in resources if each.plural == plural and each.adapters != adapters)
            return list(islice(outdated, limit))

        return await self._database.call("outdated", read)

    async def populations(self) -> Sequence[Population]:
        def read() -> list[Population]:
            counted = Counter((each.plural, each.is_ready) for each in self._tables.resources.values())
            return [Population(*key, count) for key, count in sorted(counted.items())]

        return await self._database.call("populations", read)

    async def longest_waits(self) -> Sequence[LongestWait]:
        def read() -> list[LongestWait]:
            longest: dict[tuple[str, str], datetime] = {}
            for each in self._tables.resources.values():
                for adapter, since in each.waiting.items():
                    key = (each.plural, adapter)
                    longest[key] = min(since, longest.get(key, since))
            return [LongestWait(*key, since) for key, since in sorted(longest.items())]

        return await self._database.call("longest_waits", read)

    async def expire_discarded(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_discarded", lambda: self._tables.expire_discarded(before, limit))

    async def expire_history(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_history", lambda: self._tables.expire_history(before, limit))


class _Transaction(MemoryTransaction):
    def __init__(self, database: MemoryDatabase, on_commit: CommitListener | None) -> None:
        super().__init__(database)
        self._tables = database.tables(FleetTables)
        self._log = database.tables(ChangeTable)
        self._on_commit = on_commit
        self._locked: set[str] = set()
        self._changes: list[tuple[StoredResource | None, StoredResource | None]] = []

    def committed(self) -> None:
        if self._changes:
            self._log.append(self._changes)
        if self._on_commit is not None:
            for before, after in self._changes:
                self._on_commit(before, after)

    def lock(self, resource_id: str) -> StoredResource | None:
        resource = self._open_tables.resources.get(resource_id)
        if resource is not None:
            self._locked.add(resource.root)
        return resource

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        tables = self._open_tables
        parent = tables.resources.get(resource_id)
        if parent is not None:
            self._require_lock(parent)
        return tables.children_of(resource_id)

    def count_children(self, resource_id: str) -> int:
        return self._open_tables.count_children(resource_id)

    def insert(self, resource: StoredResource) -> None:
        tables = self._open_tables
        if resource.id in tables.resources:
            raise self._abort(IdTaken(f"the id {resource.id} is taken"))
        if tables.has_name(resource):
            raise self._abort(NameTaken(f"the name {resource.name} is taken"))
        if resource.parent:
            if resource.parent not in tables.resources:
                raise RuntimeError(f"{resource.id}: its parent {resource.parent} does not exist")
            self._require_lock(resource)
        self._locked.add(resource.root)
        self._replace(None, resource)

    def update(self, resource: StoredResource) -> None:
        before = self._existing(resource.id)
        immutable = {field: getattr(before, field) for field in _IMMUTABLE}
        self._replace(before, msgspec.structs.replace(resource, **immutable))

    def remove(self, resource_id: str) -> None:
        resource = self._existing(resource_id)
        if self._tables.count_children(resource_id):
            raise RuntimeError(f"{resource_id} is removed before its children")
        self._replace(resource, None)
        self._assign(self._tables.discarded, resource_id, None)

    def record_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        reports = (*self._open_tables.discarded.get(resource_id, ()), report)
        self._assign(self._tables.discarded, resource_id, reports[max(0, len(reports) - limit) :])

    def record_generation(self, resource_id: str, record: GenerationRecord) -> None:
        records = (*self._open_tables.history.get(resource_id, ()), record)
        self._assign(self._tables.history, resource_id, records)

    @property
    def _open_tables(self) -> FleetTables:
        self._require_open()
        return self._tables

    def _existing(self, resource_id: str) -> StoredResource:
        resource = self._open_tables.resources.get(resource_id)
        if resource is None:
            raise RuntimeError(f"{resource_id} does not exist")
        self._require_lock(resource)
        return resource

    def _require_lock(self, resource: StoredResource) -> None:
        if resource.root not in self._locked:
            raise RuntimeError(f"the family of {resource.id} is used before it is locked")

    def _replace(self, before: StoredResource | None, after: StoredResource | None) -> None:
        tables = self._tables
        tables.replace(before, after)
        self._changes.append((before, after))
        self._undo.append(lambda: tables.replace(after, before))


def _newest(records: Sequence[V], limit: int, offset: int) -> tuple[list[V], int]:
    return list(islice(reversed(records), offset, offset + limit)), len(records)

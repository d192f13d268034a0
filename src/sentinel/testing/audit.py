"""The audit in memory: a verified fake of `ports.audit.AuditLog`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter

from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.testing.database import MemoryDatabase

_id = attrgetter("id")


class AuditTable:
    """The entries, sorted by id."""

    def __init__(self) -> None:
        self._entries: list[AuditEntry] = []

    def add(self, entry: AuditEntry) -> None:
        insort(self._entries, entry, key=_id)

    def remove(self, entry: AuditEntry) -> None:
        self._entries.remove(entry)

    def find(self, query: AuditQuery) -> list[AuditEntry]:
        end = bisect_left(self._entries, query.before, key=_id) if query.before else len(self._entries)
        selected = (
            entry
            for entry in (self._entries[position] for position in range(end - 1, -1, -1))
            if query.actor in ("", entry.actor)
            and query.action in ("", entry.action)
            and query.resource_id in ("", entry.resource_id)
        )
        return list(islice(selected, query.limit))

    def expire(self, before: datetime, limit: int) -> int:
        """Delete at most `limit` older entries, and return how many."""
        old = {entry.id for entry in self._entries[:limit] if entry.time < before}
        self._entries = [entry for entry in self._entries if entry.id not in old]
        return len(old)


class MemoryAuditLog:
    """The entries that transactions on a database have recorded."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._table = database.tables(AuditTable)

    async def find(self, query: AuditQuery) -> Sequence[AuditEntry]:
        return await self._database.call("find_audit", lambda: self._table.find(query))

    async def expire(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_audit", lambda: self._table.expire(before, limit))

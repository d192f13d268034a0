"""Idempotency keys in memory: a verified fake of `ports.idempotency.IdempotencyStore`."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter

from sentinel.ports.idempotency import StoredResponse
from sentinel.testing.database import MemoryDatabase


class ResponseTable(dict[tuple[str, str], StoredResponse]):
    """The responses, by actor and key."""

    def expire(self, before: datetime, limit: int) -> int:
        """Delete at most `limit` older responses, oldest first, and return how many."""
        old = sorted((each for each in self.values() if each.time < before), key=attrgetter("time"))[:limit]
        for each in old:
            del self[each.actor, each.key]
        return len(old)


class MemoryIdempotencyStore:
    """The responses that transactions on a database have stored."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._table = database.tables(ResponseTable)

    async def expire(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_responses", lambda: self._table.expire(before, limit))

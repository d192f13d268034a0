"""What webhooks deliver, in memory.

It passes the same contract suite as SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from sentinel.ports.webhook_store import Delivery, WebhookTransaction
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.transaction import MemoryTransaction, transact

T = TypeVar("T")

_NEVER = datetime.min.replace(tzinfo=UTC)


class Lease(msgspec.Struct):
    """Who works for a webhook, and how far its events were copied."""

    holder: str
    until: datetime
    position: int


class WebhookTables:
    """Leases by webhook, deliveries by id."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.deliveries: dict[int, Delivery] = {}
        self.newest_id = 0


class MemoryWebhookStore:
    """A verified fake of `ports.webhook_store.WebhookStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._tables = database.tables(WebhookTables)

    async def acquire(
        self, webhook: str, holder: str, *, now: datetime, until: datetime, newest: int
    ) -> int | None:
        def act() -> int | None:
            lease = self._tables.leases.setdefault(webhook, Lease(holder, _NEVER, newest))
            if lease.holder != holder and lease.until > now:
                return None
            lease.holder, lease.until = holder, until
            return lease.position

        return await self._database.call("acquire_webhook", act)

    async def release(self, webhook: str, holder: str) -> None:
        def act() -> None:
            lease = self._tables.leases.get(webhook)
            if lease is not None and lease.holder == holder:
                lease.until = _NEVER

        await self._database.call("release_webhook", act)

    async def copy(self, webhook: str, deliveries: Sequence[Delivery], *, after: int, position: int) -> bool:
        def act() -> bool:
            lease = self._tables.leases.get(webhook)
            if lease is None or lease.position != after:
                return False
            lease.position = position
            for each in deliveries:
                self._tables.newest_id += 1
                new_id = self._tables.newest_id
                self._tables.deliveries[new_id] = msgspec.structs.replace(each, id=new_id)
            return True

        return await self._database.call("copy_events", act)

    async def due(self, webhook: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        return await self._database.call(
            "due_deliveries", lambda: [each for each in self._pending(webhook) if each.next_time <= now][:limit]
        )

    async def save(self, delivery: Delivery) -> None:
        def act() -> None:
            if delivery.id in self._tables.deliveries:
                self._tables.deliveries[delivery.id] = delivery

        await self._database.call("save_delivery", act)

    async def remove(self, delivery_id: int) -> None:
        await self._database.call("remove_delivery", lambda: self._tables.deliveries.pop(delivery_id, None))

    async def count_pending(self, webhook: str) -> int:
        return await self._database.call("count_pending", lambda: len(self._pending(webhook)))

    async def count_dead_letters(self) -> int:
        return await self._database.call("count_dead_letters", lambda: len(self._dead()))

    async def dead_letters(self, *, after: int, limit: int) -> Sequence[Delivery]:
        return await self._database.call(
            "dead_letters", lambda: [each for each in self._dead() if each.id > after][:limit]
        )

    async def transact(self, work: Callable[[WebhookTransaction], T]) -> T:
        return await transact(self._database, lambda: _Transaction(self._database), work)

    async def expire_dead_letters(self, before: datetime, *, limit: int) -> int:
        def act() -> int:
            old = [each for each in self._dead() if each.failed_time is not None and each.failed_time < before]
            for each in old[:limit]:
                del self._tables.deliveries[each.id]
            return len(old[:limit])

        return await self._database.call("expire_dead_letters", act)

    def _pending(self, webhook: str) -> list[Delivery]:
        found = self._tables.deliveries.values()
        return [each for each in found if each.webhook == webhook and each.failed_time is None]

    def _dead(self) -> list[Delivery]:
        return [each for each in self._tables.deliveries.values() if each.failed_time is not None]


class _Transaction(MemoryTransaction):
    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._tables = database.tables(WebhookTables)

    def dead_letter(self, delivery_id: int) -> Delivery | None:
        self._require_open()
        found = self._tables.deliveries.get(delivery_id)
        return None if found is None or found.failed_time is None else found

    def save_delivery(self, delivery: Delivery) -> None:
        self._require_open()
        self._assign(self._tables.deliveries, delivery.id, delivery)

    def remove_delivery(self, delivery_id: int) -> None:
        self._require_open()
        self._assign(self._tables.deliveries, delivery_id, None)

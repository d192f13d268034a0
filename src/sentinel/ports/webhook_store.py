"""What webhooks still have to deliver, and what they could not.

Events wait in the log only as long as that is kept. So a webhook first copies its events, with the position up to
which it has done so, and then delivers the copies, each with its own schedule of attempts. One hub at a time works
for a webhook: it holds a lease, which ends by itself if that hub dies. The implementations are SQLite, PostgreSQL,
and memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from sentinel.ports.audit import AuditWriter
from sentinel.ports.hub_store import HubEvent

T = TypeVar("T")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way to one webhook."""

    id: int = 0
    """Given by the store, ascending."""
    webhook: str
    event: HubEvent
    attempts: int = 0
    next_time: datetime
    """When it is tried next."""
    error: str = ""
    """Why the last attempt failed."""
    failed_time: datetime | None = None
    """When it was given up. It is a dead letter then."""


class WebhookTransaction(AuditWriter, Protocol):
    """A transaction about dead letters."""

    def dead_letter(self, delivery_id: int) -> Delivery | None:
        """Return a dead letter, and lock it until the transaction ends."""

    def save_delivery(self, delivery: Delivery) -> None:
        """Store one that was read in this transaction."""

    def remove_delivery(self, delivery_id: int) -> None: ...


class WebhookStore(Protocol):
    """Deliveries of all webhooks. Every call may raise `Unavailable`."""

    async def acquire(
        self, webhook: str, holder: str, *, now: datetime, until: datetime, newest: int
    ) -> int | None:
        """Take or renew the lease. Returns the number of the last event that was copied, or None if another holder
        has the lease. A webhook that is new begins after the event `newest`."""

    async def release(self, webhook: str, holder: str) -> None:
        """Give up the lease, if it is still held."""

    async def copy(self, webhook: str, deliveries: Sequence[Delivery], *, after: int, position: int) -> bool:
        """Add deliveries and move the position, in one transaction. False if it was not `after` any more."""

    async def due(self, webhook: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        """Return what is to be tried now, in the order of the events."""

    async def save(self, delivery: Delivery) -> None:
        """Store the outcome of a failed attempt."""

    async def remove(self, delivery_id: int) -> None:
        """Forget what was delivered."""

    async def count_pending(self, webhook: str) -> int: ...

    async def count_dead_letters(self) -> int: ...

    async def dead_letters(self, *, after: int, limit: int) -> Sequence[Delivery]:
        """Return dead letters in the order of their ids."""

    async def transact(self, work: Callable[[WebhookTransaction], T]) -> T: ...

    async def expire_dead_letters(self, before: datetime, *, limit: int) -> int:
        """Delete those that were given up before this time. Returns how many."""

"""Use cases of dead letters: events that a webhook did not take after all attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from sentinel.ports.clock import Clock
from sentinel.ports.webhook_store import Delivery, WebhookStore, WebhookTransaction
from sentinel.web.audit import Auditor
from sentinel.web.errors import NotFound
from sentinel.web.problem import shown
from sentinel.web.routing import Caller

KIND: Final = "dead_letter"
"""The kind of dead letters in the audit."""

_Change: TypeAlias = Callable[[WebhookTransaction, Delivery], None]


class DeadLetters:
    """Lists, retries and deletes dead letters. Every call may raise `Unavailable`."""

    def __init__(self, *, store: WebhookStore, clock: Clock, auditor: Auditor) -> None:
        self._store = store
        self._clock = clock
        self._auditor = auditor

    async def find(self, *, after: int, limit: int) -> tuple[Sequence[Delivery], int]:
        """Return dead letters, oldest first, and how many there are."""
        return await self._store.dead_letters(after=after, limit=limit), await self._store.count_dead_letters()

    async def retry(self, caller: Caller, text: str) -> None:
        """Let the webhook try once more, from the first attempt on. Raises `NotFound`."""
        now = self._clock.now()

        def change(transaction: WebhookTransaction, found: Delivery) -> None:
            again = msgspec.structs.replace(found, attempts=0, next_time=now, failed_time=None)
            transaction.save_delivery(again)

        await self._change(caller, text, "retry", change)

    async def remove(self, caller: Caller, text: str) -> None:
        """Raises `NotFound`."""
        await self._change(
            caller, text, "delete", lambda transaction, found: transaction.remove_delivery(found.id)
        )

    async def _change(self, caller: Caller, text: str, action: str, change: _Change) -> None:
        delivery_id = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
        entry = self._auditor.entry(
            caller, action=action, kind=KIND, resource_id=str(delivery_id), now=self._clock.now()
        )

        def work(transaction: WebhookTransaction) -> None:
            found = transaction.dead_letter(delivery_id)
            if found is None:
                raise NotFound(f"there is no dead letter {shown(text)}")
            change(transaction, found)
            transaction.record(entry)

        await self._store.transact(work)

"""Requests with an idempotency key: the response of the first is stored and given to those that repeat it.

The response is stored in the transaction that carries the request out, so there is neither without the other.
SQLite and PostgreSQL ship, and a store in memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.ports.database import AlreadyExists


class KeyTaken(AlreadyExists):
    """A transaction that ran at the same time has stored a response under this key. Try again and recall it."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request with an idempotency key."""

    actor: str
    """Who asked; keys of different actors are different."""
    key: str
    fingerprint: str
    """Of what the request asked for: another request under the same key is a mistake."""
    time: datetime
    version: int
    """Of what the body shows, for its ETag; 0 where it has none."""
    body: bytes


class StoredResponses(Protocol):
    """The part of a component's transaction that knows earlier responses."""

    def recall(self, actor: str, key: str) -> StoredResponse | None: ...

    def remember(self, response: StoredResponse) -> None:
        """Takes effect with the rest of the transaction, or not at all. Raises `KeyTaken`, and the transaction is
        then over."""


class IdempotencyStore(Protocol):
    """Forgets responses when they are old."""

    async def expire(self, before: datetime, *, limit: int) -> int:
        """Deletes responses that are older than this moment, the oldest first and at most `limit`; says how many.
        Raises `Unavailable`."""

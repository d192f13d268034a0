"""Idempotency keys: the response to the first request is stored and returned to its repetitions.

The response is stored in the same transaction as the request's writes, so neither exists without the other. The
implementations are SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.ports.database import AlreadyExists


class KeyTaken(AlreadyExists):
    """A concurrent transaction has stored a response under this key. Run the work again to recall it."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request with an idempotency key."""

    actor: str
    """Who sent the request. Each actor has its own keys."""
    key: str
    fingerprint: str
    """A hash of the request's content: a different request under the same key is an error."""
    time: datetime
    version: int
    """Of the resource in the body, for the ETag; 0 if it has none."""
    body: bytes


class StoredResponses(Protocol):
    """The part of a component's transaction that stores responses."""

    def recall(self, actor: str, key: str) -> StoredResponse | None: ...

    def remember(self, response: StoredResponse) -> None:
        """Store a response. It takes effect with the rest of the transaction or not at all. Raises `KeyTaken`,
        which ends the transaction."""


class IdempotencyStore(Protocol):
    """Deletes old responses."""

    async def expire(self, before: datetime, *, limit: int) -> int:
        """Delete responses older than `before`, oldest first, at most `limit`. Returns how many. Raises
        `Unavailable`."""

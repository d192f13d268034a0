"""Tokens and sign-ins in the database, as a source of identities.

A request costs no query: what a lookup found is remembered until the store's revision changes, and the revision is
read at most twice a second, however many requests there are. So a token that any server on the database revoked
is rejected within a second. Unknown tokens are remembered too, apart from the others, so that guesses cannot push
out those that are in use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from sentinel.core.access import Identity
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity_store import IdentityStore, TokenOwner
from sentinel.runtime import bearer_tokens

V = TypeVar("V")

CHECK_INTERVAL: Final = timedelta(milliseconds=500)
MAX_REMEMBERED: Final = 10_000


class StoredTokens:
    """`ports.identity.Identities` with a store of identities."""

    def __init__(
        self,
        store: IdentityStore,
        *,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._max_remembered = max_remembered
        self._checking = asyncio.Lock()
        self._checked_at = self._forgotten_at = float("-inf")
        self._revision: int | None = None
        self._outage: Unavailable | None = None
        self._known: dict[bytes, TokenOwner] = {}
        self._unknown: dict[bytes, None] = {}

    async def identify(self, token: str) -> Identity | None:
        """Return the identity of this token, or None if it is unknown, revoked or expired."""
        if len(token) != bearer_tokens.LENGTH or not token.startswith(bearer_tokens.PREFIX):
            return None
        digest = bearer_tokens.digest_of(token)
        if self._has_expired(self._known.get(digest)):
            return None  # without the database: an outage must not let a token live longer
        if self._is_stale(self._monotonic()):
            await self._check_revision()
        if self._outage is not None:
            raise self._outage
        owner = self._known.get(digest)
        if owner is None:
            owner = None if digest in self._unknown else await self._look_up(digest)
        return None if owner is None or self._has_expired(owner) else owner.identity

    def forget(self) -> None:
        """Look everything up again. Called after a change in this process, which then takes effect at once."""
        self._forgotten_at = self._monotonic()

    def _has_expired(self, owner: TokenOwner | None) -> bool:
        return owner is not None and owner.expires_time is not None and owner.expires_time <= self._clock.now()

    def _is_stale(self, now: float) -> bool:
        # A check that began before `forget` was called may have read the revision before the change.
        return now - self._checked_at >= CHECK_INTERVAL.total_seconds() or self._checked_at <= self._forgotten_at

    async def _check_revision(self) -> None:
        """Read the revision, and forget everything if it has changed. Requests that come meanwhile wait for it."""
        async with self._checking:
            began = self._monotonic()
            if not self._is_stale(began):
                return
            try:
                revision = await self._store.revision()
            except Unavailable as error:
                # Until the next check, requests fail at once instead of waiting for the database one by one.
                self._outage, self._revision, self._checked_at = error, None, self._monotonic()
            else:
                if revision != self._revision:
                    self._known, self._unknown = {}, {}
                self._outage, self._revision, self._checked_at = None, revision, began

    async def _look_up(self, digest: bytes) -> TokenOwner | None:
        known, unknown = self._known, self._unknown
        owner = await self._store.owner(digest)
        # Into the dictionaries from before the query: if the revision has changed meanwhile, they are discarded,
        # and with them the result, which may be older than the change.
        if owner is None:
            _remember(unknown, digest, None, limit=self._max_remembered)
        else:
            _remember(known, digest, owner, limit=self._max_remembered)
        return owner


def _remember(table: dict[bytes, V], digest: bytes, value: V, *, limit: int) -> None:
    if len(table) >= limit:
        del table[next(iter(table))]
    table[digest] = value

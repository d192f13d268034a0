"""One lock per key, within this process.

A pulse makes every adapter of a resource report at the same time. If they all read the same version, only one can
write and the others waste their queries. So they wait here, where waiting holds no connection. Sign-ins wait for
others with the same name or address, so that parallel guesses are counted one by one.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from weakref import WeakValueDictionary

from sentinel.ports.errors import Unavailable


class KeyLocks:
    """Locks by key. Other processes do not see them."""

    def __init__(self, *, timeout: timedelta) -> None:
        """`timeout` limits how long a caller waits for a key."""
        self._timeout = timeout
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock exists while a task holds it or waits for it."""

    def __len__(self) -> int:
        return len(self._locks)

    async def acquire(self, key: str) -> asyncio.Lock:
        """Acquire the lock of this key; the caller releases it. Raises `Unavailable` after the timeout."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await lock.acquire()
        except TimeoutError as error:
            waited = f"{self._timeout.total_seconds():g} s"
            raise Unavailable(f"{key}: timed out after {waited} waiting for others") from error
        return lock

"""A lock for each key, within this process.

A pulse makes every adapter of a resource report at the same moment. Of those that read the same version one can
write, and the others go to the database for nothing. They wait here instead, where waiting holds no connection.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from weakref import WeakValueDictionary

from sentinel.ports.errors import Unavailable


class KeyLocks:
    """Locks by key. Other processes know nothing of them."""

    def __init__(self, *, timeout: timedelta) -> None:
        """`timeout` is how long a caller waits for a key."""
        self._timeout = timeout
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock lives as long as a task holds it or waits for it."""

    def __len__(self) -> int:
        return len(self._locks)

    async def acquire(self, key: str) -> asyncio.Lock:
        """The lock of this key, held; the caller releases it. Raises `Unavailable` after the timeout."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await lock.acquire()
        except TimeoutError as error:
            waited = f"{self._timeout.total_seconds():g} s"
            raise Unavailable(f"{key}: others were writing to it for {waited}") from error
        return lock

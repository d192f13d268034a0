"""One after the other, where all at once would only get in each other's way.

A pulse has all adapters of a resource report at once. Of those that read the same version of it one can write, and
the others would have gone to the database for nothing; so they wait here, where waiting costs no connection.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from weakref import WeakValueDictionary

from sentinel.ports.errors import Unavailable


class Turns:
    """Whose turn it is, by key. No lock: other processes know nothing of it."""

    def __init__(self, *, patience: timedelta) -> None:
        """`patience` is how long anybody waits for a turn."""
        self._patience = patience
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Each lasts as long as somebody has it or waits for it."""

    def __len__(self) -> int:
        return len(self._turns)

    async def take(self, key: str) -> asyncio.Lock:
        """The turn, to be released. Raises `Unavailable` where too many come first, or they take too long."""
        turn = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await turn.acquire()
        except TimeoutError as error:
            waited = f"{self._patience.total_seconds():g} s"
            raise Unavailable(f"{key}: others were writing to it for {waited}") from error
        return turn

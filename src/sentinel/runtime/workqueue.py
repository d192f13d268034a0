"""What is to be looked at: keys with the reasons for it, each key in the hands of one worker at a time.

Everything that arrives for a key before a worker takes it is answered by one look; what arrives during the look
causes exactly one more, because it may be about a change that came after the state was read. That is the whole
of coalescing, and it is what makes a hundred events for one resource cost two evaluations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Agenda(Generic[K, R]):
    """A queue of keys without repetitions. It is bounded by whoever fills it."""

    def __init__(self) -> None:
        self._due: deque[K] = deque()
        self._reasons: dict[K, list[R]] = {}
        self._under_way: set[K] = set()
        self._available = asyncio.Semaphore(0)
        self._is_closed = False

    @property
    def under_way(self) -> int:
        """How many keys are in somebody's hands."""
        return len(self._under_way)

    def add(self, key: K, reason: R) -> None:
        """Asks for a look, for this reason, too."""
        reasons = self._reasons.get(key)
        if reasons is not None:
            reasons.append(reason)
            return
        self._reasons[key] = [reason]
        if key not in self._under_way:
            self._make_due(key)

    async def next(self) -> tuple[K, list[R]] | None:
        """The key that has waited longest, with all its reasons, for the caller alone until `done`.

        None once the agenda is closed, whatever is left in it.
        """
        await self._available.acquire()
        if self._is_closed:
            self._available.release()  # for the next one who waits
            return None
        key = self._due.popleft()
        self._under_way.add(key)
        return key, self._reasons.pop(key)

    def done(self, key: K) -> None:
        """The look is over; if there are new reasons, there will be another."""
        self._under_way.discard(key)
        if key in self._reasons:
            self._make_due(key)

    def close(self) -> None:
        """Hands out nothing more."""
        self._is_closed = True
        self._available.release()

    def _make_due(self, key: K) -> None:
        self._due.append(key)
        self._available.release()

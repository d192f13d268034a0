"""Limits how often a password can be guessed.

Failures are counted per name and per address, each by itself: guessing one user's password from many addresses is
limited, and so is guessing many users' passwords from one address. An attempt is counted before the password is
checked and taken back if it was right, so that a client that disconnects meanwhile gains nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

MAX_FAILURES: Final = 5
WINDOW: Final = timedelta(minutes=1)
MAX_KEYS: Final = 100_000
"""Names and addresses that are remembered. Beyond it, those that failed least recently are forgotten."""


class LoginThrottle:
    """The recent failures of each key: a name or an address."""

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._failures: dict[str, deque[datetime]] = {}
        """Ordered by the time of the last failure."""

    def __len__(self) -> int:
        return len(self._failures)

    def wait(self, keys: Iterable[str], now: datetime) -> timedelta:
        """Return how long an attempt with these keys has to wait; zero if it may be made now."""
        waits = [self._wait(key, now) for key in keys]
        return max(waits, default=timedelta(0))

    def fail(self, keys: Iterable[str], now: datetime) -> None:
        """Count a failed attempt."""
        self._forget_old(now)
        for key in keys:
            failures = self._failures.pop(key, None) or deque(maxlen=MAX_FAILURES)
            failures.append(now)
            self._failures[key] = failures
        while len(self._failures) > self._max_keys:
            del self._failures[next(iter(self._failures))]

    def take_back(self, keys: Iterable[str], time: datetime) -> None:
        """Do not count the attempt at this time, because it was right."""
        for key in keys:
            failures = self._failures.get(key)
            if failures is not None and time in failures:
                failures.remove(time)
                if not failures:
                    del self._failures[key]

    def _wait(self, key: str, now: datetime) -> timedelta:
        failures = self._failures.get(key, ())
        recent = [time for time in failures if now - time < WINDOW]
        return recent[0] + WINDOW - now if len(recent) >= MAX_FAILURES else timedelta(0)

    def _forget_old(self, now: datetime) -> None:
        while self._failures:
            key = next(iter(self._failures))
            if now - self._failures[key][-1] < WINDOW:
                return
            del self._failures[key]

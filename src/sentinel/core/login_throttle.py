"""Limits how often a password can be guessed.

Failures are counted per name and per address, each by itself: guessing one user's password from many addresses is
limited, and so is guessing many users' passwords from one address. The times of failures are in the database, so
that all servers on it share the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

MAX_FAILURES: Final = 5
WINDOW: Final = timedelta(minutes=1)


def wait(failures: Iterable[datetime], now: datetime) -> timedelta:
    """Return how long an attempt has to wait after these failures of one key; zero if it may be made now."""
    recent = _recent(failures, now)
    if len(recent) < MAX_FAILURES:
        return timedelta(0)
    return min(recent[-MAX_FAILURES] + WINDOW - now, WINDOW)


def with_failure(failures: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    """Return the failures of a key after another one: those that still count, oldest first."""
    return tuple(sorted((*_recent(failures, now), now))[-MAX_FAILURES:])


def _recent(failures: Iterable[datetime], now: datetime) -> list[datetime]:
    """The failures that count. Those of a server whose clock is far ahead do not: they would lock a user out."""
    return sorted(time for time in failures if abs(now - time) < WINDOW)

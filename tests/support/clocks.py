"""Clocks that a test sets."""

from __future__ import annotations

from datetime import datetime, timedelta

from sentinel.testing.loop import SimulatedClock


class AdjustedClock(SimulatedClock):
    """A wall clock that is ahead or behind by `offset`, which does not affect sleeps."""

    def __init__(self, offset: timedelta = timedelta(0)) -> None:
        self.offset = offset

    def now(self) -> datetime:
        return super().now() + self.offset


class MonotonicSeconds:
    """A monotonic time that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

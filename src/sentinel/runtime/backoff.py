"""Delays between retries.

Everything that retries (a page, a publish, a lost connection, a failed part) uses the same exponential backoff
with jitter, so that many processes that lost the same server do not all reconnect at once. The random number is
an argument, so that the schedule is a pure function and a simulation can replay it.
"""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

_MAX_DELAY = timedelta(days=365)


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff with proportional jitter, never above the maximum."""

    initial: timedelta
    """The delay after the first failure. Zero means that every retry is immediate."""
    maximum: timedelta
    """The longest delay, including jitter."""
    factor: float = 2.0
    """The growth of each delay. 1 keeps them equal."""
    jitter: float = 0.1
    """The fraction by which a delay may be shorter or longer. 0 makes the schedule exact. At the maximum, delays
    are only made shorter."""

    def __post_init__(self) -> None:
        if self.initial < timedelta(0):
            raise ValueError(f"initial: expected zero or more, got {self.initial}")
        if not self.initial <= self.maximum <= _MAX_DELAY:
            raise ValueError(
                f"maximum: expected between initial ({self.initial}) and {_MAX_DELAY}, got {self.maximum}"
            )
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"factor: expected 1 or more, and finite, got {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter: expected between 0 and 1, got {self.jitter}")

    def delay(self, attempt: int, random: float) -> timedelta:
        """Return the delay after failure number `attempt`, counted from 0, for a `random` number from [0, 1)."""
        initial = self.initial.total_seconds()
        try:
            grown = initial * self.factor**attempt
        except OverflowError:
            grown = math.inf if initial else initial
        maximum = self.maximum.total_seconds()
        nominal = min(grown, maximum)
        # Cut the interval at the maximum, not the result: otherwise half of all processes would get the same
        # delay.
        shortest = nominal * (1 - self.jitter)
        longest = min(nominal * (1 + self.jitter), maximum)
        return min(timedelta(seconds=shortest + (longest - shortest) * random), self.maximum)

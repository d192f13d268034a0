"""How long to wait before trying again.

Everything that retries - a page, a publish, a lost connection, a part that failed - grows its waits the same
way, and spreads them so that many processes which lost the same server do not come back to it together. The
randomness is an argument: the schedule stays a pure function, and a simulation can replay it.
"""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

_LONGEST = timedelta(days=365)


class Backoff(msgspec.Struct, frozen=True):
    """Exponential growth with proportional jitter. No wait is longer than the maximum."""

    initial: timedelta
    """The wait after the first failure; zero means that every retry is immediate."""
    maximum: timedelta
    """The longest wait, jitter included."""
    factor: float = 2.0
    """How much longer each wait is than the one before; 1 keeps them equal."""
    jitter: float = 0.1
    """The fraction by which a wait may be shorter or longer; 0 makes the schedule exact. At the maximum there is
    room only below it."""

    def __post_init__(self) -> None:
        if self.initial < timedelta(0):
            raise ValueError(f"initial: expected zero or more, got {self.initial}")
        if not self.initial <= self.maximum <= _LONGEST:
            raise ValueError(
                f"maximum: expected between initial ({self.initial}) and {_LONGEST}, got {self.maximum}"
            )
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"factor: expected 1 or more, and finite, got {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter: expected between 0 and 1, got {self.jitter}")

    def delay(self, attempt: int, random: float) -> timedelta:
        """The wait after failure number `attempt`, counted from 0, for a `random` drawn from [0, 1)."""
        initial = self.initial.total_seconds()
        try:
            grown = initial * self.factor**attempt
        except OverflowError:
            # Past what a float can hold; only growth leads there, and only from something that can grow.
            grown = math.inf if self.factor > 1 and initial else initial
        maximum = self.maximum.total_seconds()
        nominal = min(grown, maximum)
        # The interval is cut at the maximum, not the result: cutting the result would give half of all processes
        # the same wait.
        shortest = nominal * (1 - self.jitter)
        longest = min(nominal * (1 + self.jitter), maximum)
        return min(timedelta(seconds=shortest + (longest - shortest) * random), self.maximum)

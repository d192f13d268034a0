"""The faults of a simulation, all derived from the seed.

Every participant draws from its own random stream, so that killing one a step earlier does not change the others.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from sentinel.testing.database import Fault


class Transmission(StrEnum):
    """What happens to a message between two participants."""

    ARRIVES = "arrives"
    LOST = "lost"
    """It never arrives."""
    UNANSWERED = "unanswered"
    """It arrives and takes effect, but the response is lost."""
    TWICE = "twice"
    """It arrives, and a copy arrives later."""


_FAILURES = (Transmission.LOST, Transmission.UNANSWERED, Transmission.TWICE)


class FaultRates:
    """The current rates of network and database faults. Without faults every message arrives once, after a
    delay."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.failed = 0.0
        """The share of messages with a fault."""
        self.latency = 0.02
        """The average delay of a message, in seconds."""
        self.slow = 0.0
        """The share of messages with fifty times the delay."""
        self.database = 0.0
        """The share of database calls that fail."""

    def start(self) -> None:
        self.failed = self._random.choice((0.0, 0.05, 0.15))
        self.latency = self._random.choice((0.01, 0.1))
        self.slow = self._random.choice((0.0, 0.05, 0.2))
        self.database = self._random.choice((0.0, 0.0, 0.05))

    def stop(self) -> None:
        self.failed = self.slow = self.database = 0.0
        self.latency = 0.02

    def transmission(self) -> Transmission:
        """Draw what happens to the next message."""
        is_failure = self.failed and self._random.random() < self.failed
        return self._random.choice(_FAILURES) if is_failure else Transmission.ARRIVES

    def delay(self) -> float:
        """Draw the delay of the next message, in seconds."""
        delay = self.latency * (0.5 + self._random.random())
        return delay * 50 if self.slow and self._random.random() < self.slow else delay

    def database_fault(self, call: str) -> Fault | None:
        """Draw the fault of the next database call."""
        is_fault = self.database and self._random.random() < self.database
        return self._random.choice(tuple(Fault)) if is_fault else None


def randomness(seed: int, name: str) -> Random:
    """The random stream of one participant. Renaming a stream changes what every seed simulates."""
    return Random(f"{seed}/{name}")  # noqa: S311  # repeatable randomness is the point

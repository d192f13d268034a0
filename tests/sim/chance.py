"""What goes wrong, and when: all of it from the seed.

Every party of a simulation draws from randomness of its own, so that one that is killed a step earlier does not
change everybody else's luck.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from sentinel.testing.database import Fault


class Fate(StrEnum):
    """What becomes of a message between two parties."""

    ARRIVES = "arrives"
    LOST = "lost"
    """It never arrives."""
    UNANSWERED = "unanswered"
    """It arrives and does what it does, and the answer is lost."""
    TWICE = "twice"
    """It arrives, and once more later."""


_FATES = (Fate.LOST, Fate.UNANSWERED, Fate.TWICE)


class Weather:
    """How bad it is at this moment: the shares of what goes wrong. Calm weather is not perfect, only honest: what
    is sent arrives after a while, once, and is answered."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.loss = 0.0
        """The share of messages that meet another fate than to arrive."""
        self.latency = 0.02
        """How many seconds a message takes on average."""
        self.slow = 0.0
        """The share that takes fifty times as long."""
        self.faults = 0.0
        """The share of the store's calls that fail."""

    def rage(self) -> None:
        """The faults begin."""
        self.loss = self._random.choice((0.0, 0.05, 0.15))
        self.latency = self._random.choice((0.01, 0.1))
        self.slow = self._random.choice((0.0, 0.05, 0.2))
        self.faults = self._random.choice((0.0, 0.0, 0.05))

    def calm(self) -> None:
        """The faults stop."""
        self.loss = self.slow = self.faults = 0.0
        self.latency = 0.02

    def fate(self) -> Fate:
        return self._random.choice(_FATES) if self.loss and self._random.random() < self.loss else Fate.ARRIVES

    def delay(self) -> float:
        """How many seconds something is on its way."""
        delay = self.latency * (0.5 + self._random.random())
        return delay * 50 if self.slow and self._random.random() < self.slow else delay

    def fault(self, call: str) -> Fault | None:
        """What goes wrong in a call to the store."""
        return self._random.choice(tuple(Fault)) if self.faults and self._random.random() < self.faults else None


def randomness(seed: int, name: str) -> Random:
    """The luck of one party."""
    return Random(f"{seed}/{name}")  # noqa: S311  # chance that repeats itself is the point

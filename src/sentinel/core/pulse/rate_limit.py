"""A ceiling on events: who goes first when not everyone can go, and how the rest is spread.

A backlog - a fleet restored from a backup, a Sentinel that was away - would otherwise leave at once, and whoever
listens would get it at once. Under a ceiling each cycle sends what its share of time allows: changed specs,
requested pulses and progress first, then whoever has waited longest.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from sentinel.core.pulse.decision import Decision, Reason

T = TypeVar("T")

_FIRST = frozenset({Reason.GENERATION_CHANGED, Reason.PULSE_REQUESTED, Reason.ADAPTER_PROGRESSED})
"""Somebody is waiting for these."""

_SLICES_PER_SECOND = 10
"""Events leave in slices of a tenth of a second, so that no second sees more than its share."""


class TokenBucket:
    """How many events may be sent, given how many were."""

    def __init__(self, *, per_second: float, poll_interval: timedelta) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * poll_interval.total_seconds())
        self._tokens = self._capacity
        self._filled: datetime | None = None

    @property
    def slice(self) -> int:
        """How many to send before the next pause."""
        return max(1, int(self._per_second / _SLICES_PER_SECOND))

    @property
    def pause(self) -> timedelta:
        """How long a slice has to last."""
        return timedelta(seconds=self.slice / self._per_second)

    def available(self, now: datetime) -> int:
        """What may be sent now; what was not spent is kept, up to one cycle's worth."""
        if self._filled is not None:
            elapsed = max(0.0, (now - self._filled).total_seconds())
            self._tokens = min(self._capacity, self._tokens + elapsed * self._per_second)
        self._filled = now
        return int(self._tokens + 1e-9)

    def spend(self, count: float) -> None:
        """So many were sent; more than there were is a debt that the next cycles pay."""
        self._tokens -= count


class MostUrgent(Generic[T]):
    """The most urgent of many. It holds no more than its size, so a backlog of any length costs no memory."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._offered = 0
        self._heap: list[tuple[bool, float, int, T]] = []

    def offer(self, candidate: T, decision: Decision) -> None:
        """Takes the candidate on, in place of a less urgent one where the list is full."""
        self._offered += 1
        entry = (decision.reason in _FIRST, -decision.due_time.timestamp(), -self._offered, candidate)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        elif self._size:
            heapq.heappushpop(self._heap, entry)

    @property
    def left_out(self) -> int:
        """How many have to wait for another cycle."""
        return self._offered - len(self._heap)

    def chosen(self) -> list[T]:
        """The candidates on the list, the most urgent first."""
        return [candidate for *_, candidate in sorted(self._heap, key=lambda entry: entry[:3], reverse=True)]

"""A rate limit on events: which resources go first, and how the others are spread over time.

A backlog, such as that of a fleet restored from a backup or of a Sentinel that was down, would otherwise reach the
adapters all at once. With a rate limit each cycle sends what its share of time allows: changed specs, requested
pulses and progress first, then the resources that have waited longest.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from sentinel.core.pulse.decision import Decision, Reason

T = TypeVar("T")

_FIRST = frozenset({Reason.GENERATION_CHANGED, Reason.PULSE_REQUESTED, Reason.ADAPTER_PROGRESSED})
"""Reasons that are published first, because a person or an adapter waits for the event."""

_SLICES_PER_SECOND = 10
"""Events are sent in slices of a tenth of a second, so that no second exceeds the rate."""


class TokenBucket:
    """How many events may be sent now."""

    def __init__(self, *, per_second: float, poll_interval: timedelta) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * poll_interval.total_seconds())
        self._tokens = self._capacity
        self._filled: datetime | None = None

    @property
    def slice(self) -> int:
        """How many events to send before the next pause."""
        return max(1, int(self._per_second / _SLICES_PER_SECOND))

    @property
    def pause(self) -> timedelta:
        """The pause after a slice."""
        return timedelta(seconds=self.slice / self._per_second)

    def available(self, now: datetime) -> int:
        """Refill the bucket and return how many events may be sent. It holds at most one cycle's worth."""
        if self._filled is not None:
            elapsed = max(0.0, (now - self._filled).total_seconds())
            self._tokens = min(self._capacity, self._tokens + elapsed * self._per_second)
        self._filled = now
        return int(self._tokens + 1e-9)

    def spend(self, count: float) -> None:
        """Take tokens for sent events. The bucket may go into debt, which later cycles repay."""
        self._tokens -= count


class MostUrgent(Generic[T]):
    """The most urgent of many candidates. It keeps at most `size` of them, so memory does not grow with the
    backlog."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._offered = 0
        self._heap: list[tuple[bool, float, int, T]] = []

    def offer(self, candidate: T, decision: Decision) -> None:
        """Add the candidate; when full, drop the least urgent one."""
        self._offered += 1
        entry = (decision.reason in _FIRST, -decision.due_time.timestamp(), -self._offered, candidate)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        elif self._size:
            heapq.heappushpop(self._heap, entry)

    @property
    def left_out(self) -> int:
        """How many candidates have to wait for another cycle."""
        return self._offered - len(self._heap)

    def chosen(self) -> list[T]:
        """Return the kept candidates, the most urgent first."""
        return [candidate for *_, candidate in sorted(self._heap, key=lambda entry: entry[:3], reverse=True)]

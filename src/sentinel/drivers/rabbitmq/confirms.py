"""The outcome of every published message, from the broker's confirms and returns.

The broker numbers the messages it receives on a channel, starting at 1, and confirms by number: one message, or
all up to a number. An unroutable message is returned before its confirm, with its content but without its
number. This module combines the two. Nothing here waits or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.core.events import Event
from sentinel.ports.publisher import PublishOutcome


class EventBatch:
    """The events of one publish call and the outcome of each."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.outcomes = [PublishOutcome.UNCONFIRMED] * len(events)
        self.seconds: list[float] = []
        self.unsendable_reasons: dict[int, str] = {}
        """By position."""
        self.handled = 0
        """How many events, from the first on, were sent or skipped."""
        self.unconfirmed = 0
        """How many sent events the broker has not confirmed yet."""

    @property
    def remaining(self) -> int:
        """How many events are still to be sent."""
        return len(self.events) - self.handled

    def skip_next(self, reason: str) -> None:
        """Skip an event that cannot be sent."""
        self.outcomes[self.handled] = PublishOutcome.UNSENDABLE
        self.unsendable_reasons[self.handled] = reason
        self.handled += 1


class _Run:
    """Messages sent together: consecutive in their batch and in the broker's numbering."""

    __slots__ = ("batch", "first", "last", "position", "sent", "unconfirmed")

    def __init__(self, batch: EventBatch, position: int, first: int, last: int, sent: float) -> None:
        self.batch = batch
        self.position = position
        self.first = first
        self.last = last
        self.sent = sent
        self.unconfirmed = last - first + 1


class OutstandingConfirms:
    """The messages of one channel that the broker has not confirmed.

    Messages stay here after the deadline of their publish call: a late confirm then updates a batch that is no
    longer read, and `count` still tells how much the broker has to process.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sent = 0
        self._runs: list[_Run] = []
        self._returned: dict[str, int] = {}

    @property
    def oldest_send_time(self) -> float | None:
        return self._runs[0].sent if self._runs else None

    def add(self, batch: EventBatch, count: int, now: float) -> None:
        """Record that the next `count` events of the batch were sent."""
        self._runs.append(_Run(batch, batch.handled, self._sent + 1, self._sent + count, now))
        self._sent += count
        self.count += count
        batch.handled += count
        batch.unconfirmed += count

    def message_returned(self, message_id: str) -> None:
        """Record a returned message; the confirm that follows makes it unroutable."""
        self._returned[message_id] = self._returned.get(message_id, 0) + 1

    def confirm(self, number: int, outcome: PublishOutcome, now: float, *, multiple: bool) -> None:
        """Record the broker's ack or nack of a message, or of all up to it. The first one for a message counts."""
        for run in self._runs:
            if run.first > number:
                break
            first = run.first if multiple else number
            if first <= run.last:
                self._confirm_run(run, first, min(number, run.last), outcome, now)
        self._runs = [run for run in self._runs if run.unconfirmed]

    def _confirm_run(self, run: _Run, first: int, last: int, outcome: PublishOutcome, now: float) -> None:
        outcomes = run.batch.outcomes
        start = run.position + first - run.first
        end = run.position + last - run.first + 1
        new = outcomes[start:end].count(PublishOutcome.UNCONFIRMED)
        if new == end - start and not self._returned:
            outcomes[start:end] = [outcome] * new
        else:
            for position in range(start, end):
                if outcomes[position] is PublishOutcome.UNCONFIRMED:
                    was_returned = self._pop_returned(run.batch.events[position].id)
                    outcomes[position] = PublishOutcome.UNROUTABLE if was_returned else outcome
        run.batch.seconds += [now - run.sent] * new
        run.batch.unconfirmed -= new
        run.unconfirmed -= new
        self.count -= new

    def _pop_returned(self, message_id: str) -> bool:
        count = self._returned.pop(message_id, 0)
        if count > 1:
            self._returned[message_id] = count - 1
        return count > 0

"""Which messages the broker has answered for.

The broker numbers what it receives on a channel, from one, and confirms by number: each message alone, or
everything up to a number at once. A message that it cannot route it sends back first, with its content and
without its number. Here both are brought together. Nothing in this module waits or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.core.events import Event
from sentinel.ports.publisher import Outcome


class EventBatch:
    """Events on their way, and what is known of each."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.outcomes = [Outcome.UNCONFIRMED] * len(events)
        self.seconds: list[float] = []
        self.refusals: dict[int, str] = {}
        """By position, why an event was not even sent."""
        self.begun = 0
        """How many events, counted from the first, were sent or refused."""
        self.unanswered = 0
        """How many of them the broker has still to answer for."""

    @property
    def rest(self) -> int:
        """How many events are still to be sent."""
        return len(self.events) - self.begun

    def refuse_next(self, reason: str) -> None:
        """Passes over an event that cannot be sent."""
        self.outcomes[self.begun] = Outcome.UNSENDABLE
        self.refusals[self.begun] = reason
        self.begun += 1


class _Run:
    """Messages sent together: consecutive in their batch as in the broker's numbering."""

    __slots__ = ("batch", "first", "last", "position", "sent", "unanswered")

    def __init__(self, batch: EventBatch, position: int, first: int, last: int, sent: float) -> None:
        self.batch = batch
        self.position = position
        self.first = first
        self.last = last
        self.sent = sent
        self.unanswered = last - first + 1


class OutstandingConfirms:
    """The messages of one channel that the broker has not answered for.

    Messages whose publisher gave up at its deadline stay until they are answered: a late answer then finds its
    own batch, which nobody reads any more, and `count` tells what the broker still has to digest.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sent = 0
        self._runs: list[_Run] = []
        self._returned: dict[str, int] = {}

    @property
    def since(self) -> float | None:
        """When the oldest of them was sent, None if there are none."""
        return self._runs[0].sent if self._runs else None

    def sent(self, batch: EventBatch, count: int, now: float) -> None:
        """Notes that the next so many events of the batch were sent."""
        self._runs.append(_Run(batch, batch.begun, self._sent + 1, self._sent + count, now))
        self._sent += count
        self.count += count
        batch.begun += count
        batch.unanswered += count

    def returned(self, message_id: str) -> None:
        """Notes that a message came back; the confirm that follows takes it from here."""
        self._returned[message_id] = self._returned.get(message_id, 0) + 1

    def answered(self, number: int, outcome: Outcome, now: float, *, and_all_before: bool) -> None:
        """Notes the broker's word on a message; one it has already given its word on is left as it is."""
        for run in self._runs:
            if run.first > number:
                break
            first = run.first if and_all_before else number
            if first <= run.last:
                self._settle(run, first, min(number, run.last), outcome, now)
        self._runs = [run for run in self._runs if run.unanswered]

    def _settle(self, run: _Run, first: int, last: int, outcome: Outcome, now: float) -> None:
        outcomes = run.batch.outcomes
        start = run.position + first - run.first
        end = run.position + last - run.first + 1
        fresh = outcomes[start:end].count(Outcome.UNCONFIRMED)
        if fresh == end - start and not self._returned:
            outcomes[start:end] = [outcome] * fresh
        else:
            for position in range(start, end):
                if outcomes[position] is Outcome.UNCONFIRMED:
                    came_back = self._came_back(run.batch.events[position].id)
                    outcomes[position] = Outcome.UNROUTABLE if came_back else outcome
        run.batch.seconds += [now - run.sent] * fresh
        run.batch.unanswered -= fresh
        run.unanswered -= fresh
        self.count -= fresh

    def _came_back(self, message_id: str) -> bool:
        times = self._returned.pop(message_id, 0)
        if times > 1:
            self._returned[message_id] = times - 1
        return times > 0

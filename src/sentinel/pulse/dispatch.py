"""Publishing events without making a broker's problems worse.

Events come from cycles, and from a stream between and during them. Three rules hold for all of them together:

* Until the broker has confirmed an event, each poll sends a single probe. A broker without a bound queue, or with
  a full one, is not flooded, and neither are its other queues, which receive what the full one refuses.
* Unconfirmed events are retried with backoff, for a bounded time.
* When the broker does not respond, sending stops until the next cycle; unconfirmed events are due at that poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from sentinel.core.pulse.decision import Decision
from sentinel.core.pulse.observation import Observation
from sentinel.ports.publisher import Publisher, PublishOutcome
from sentinel.pulse.report import PendingEvent, PublishedBatch, PulseObserver
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))
_PACED = frozenset({PublishOutcome.CONFIRMED, PublishOutcome.UNSENDABLE})
"""Outcomes after which sending the same event again soon is pointless."""


RecordPublished: TypeAlias = Callable[[Observation, Decision, datetime], None]
"""Records that the broker has confirmed the event for a decision, or never will."""


class SendCounts:
    """The outcomes of the events of one cycle, or of one batch of a stream."""

    def __init__(self) -> None:
        self.published = self.failed = self.unroutable = self.deferred = 0
        self.error = ""
        """Why an event was not confirmed."""

    def defer(self, count: int) -> None:
        """Count events that are due but wait for a later cycle."""
        self.deferred += count


class Dispatch:
    """Sends batches one after the other and counts their outcomes."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        observer: PulseObserver,
        deadline: timedelta,
        now: Callable[[], datetime],
        jitter: Callable[[], float],
        may_publish: Callable[[], bool] = lambda: True,
    ) -> None:
        """`deadline` bounds one attempt to publish a batch, and the time a cycle spends on failed attempts.

        While `may_publish` returns False, nothing is sent. A batch that has been sent is still awaited, unless the
        publisher is told to abandon it.
        """
        self._publisher = publisher
        self._observer = observer
        self._deadline = deadline
        self._now = now
        self._jitter = jitter
        self._may_publish = may_publish
        self._is_accepting = False
        self._probes = 0
        self._sending = asyncio.Lock()
        """A publisher takes one batch at a time."""
        self.last_error: str | None = None
        """Why the last event sent was not confirmed, or None if it was."""
        self.begin(Stopping())

    def begin(self, stopping: Stopping) -> None:
        """Begin a cycle. Once stopping is requested, nothing is retried."""
        self._stopping = stopping
        self._retry_budget = self._deadline
        self.is_halted = False
        """Whether all other events wait for the next cycle."""

    async def send(self, batch: Sequence[PendingEvent], *, counts: SendCounts, record: RecordPublished) -> None:
        """Send a batch. Return when each event has an outcome or was deferred to a later cycle."""
        remaining = list(batch)
        async with self._sending:
            while remaining and not self.is_halted and self._may_publish():
                if self._is_accepting:
                    sent, remaining = remaining, []
                else:
                    # Probe with a different event each time, in case the first one cannot be published.
                    sent = [remaining.pop(self._probes % len(remaining))]
                await self._publish(sent, counts, record)
        counts.defer(len(remaining))

    async def _publish(self, batch: Sequence[PendingEvent], counts: SendCounts, record: RecordPublished) -> None:
        outcomes = [PublishOutcome.UNCONFIRMED] * len(batch)
        seconds: list[float] = []
        unconfirmed = list(range(len(batch)))
        error = ""
        attempt = 0
        loop_time = asyncio.get_running_loop().time
        while True:
            started = loop_time()
            receipt = await self._publisher.publish([batch[n].event for n in unconfirmed], deadline=self._deadline)
            seconds.extend(receipt.seconds)
            for n, outcome in zip(unconfirmed, receipt.outcomes, strict=True):
                outcomes[n] = outcome
            unconfirmed = [n for n in unconfirmed if outcomes[n] is PublishOutcome.UNCONFIRMED]
            # The last error counts; a retry without one does not erase it.
            error = receipt.error or error
            if not unconfirmed or not await self._wait_to_retry(attempt, timedelta(seconds=loop_time() - started)):
                break
            attempt += 1
        now = self._now()
        for pending, outcome in zip(batch, outcomes, strict=True):
            if outcome in _PACED:
                record(pending.paced.resource, pending.paced.decision, now)
        self._count_outcomes(outcomes, error, counts)
        self._observer.published(PublishedBatch(batch, outcomes, seconds, error))

    async def _wait_to_retry(self, attempt: int, spent: timedelta) -> bool:
        """Wait for the backoff. Return False if the cycle's retry budget is spent, on shutdown, and if nothing may
        be published any more."""
        delay = _RETRY.delay(attempt, self._jitter())
        self._retry_budget -= spent + delay
        if self._retry_budget < timedelta(0):
            return False
        return not await self._stopping.interrupts(asyncio.sleep(delay.total_seconds())) and self._may_publish()

    def _count_outcomes(self, outcomes: Sequence[PublishOutcome], error: str, counts: SendCounts) -> None:
        confirmed = outcomes.count(PublishOutcome.CONFIRMED)
        unroutable = outcomes.count(PublishOutcome.UNROUTABLE)
        unsendable = outcomes.count(PublishOutcome.UNSENDABLE)
        unconfirmed = outcomes.count(PublishOutcome.UNCONFIRMED)
        refused = len(outcomes) - confirmed - unroutable - unsendable - unconfirmed
        counts.published += confirmed
        counts.unroutable += unroutable
        counts.failed += unsendable + unconfirmed + refused
        if unroutable or unconfirmed or refused:
            self.last_error = counts.error = error
        elif confirmed:
            self.last_error = None
        if confirmed and not unroutable:
            self._is_accepting = True
        elif unroutable or refused:
            self._is_accepting = False
            self._probes += 1
        self.is_halted = bool(unroutable or unconfirmed or (refused and not confirmed))

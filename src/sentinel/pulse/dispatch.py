"""Publishing a cycle's events without making a broker's problems worse.

Three rules:

* Until the broker has confirmed an event, each poll sends a single probe. A broker without a bound queue, or with
  a full one, is not flooded, and neither are its other queues, which receive what the full one refuses.
* Unconfirmed events are retried with backoff, for a bounded time.
* When the broker does not respond, sending stops for this cycle; unconfirmed events are due at the next poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.publisher import Publisher, PublishOutcome
from sentinel.pulse.report import PendingEvent, PublishedBatch, PulseObserver
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))
_PACED = frozenset({PublishOutcome.CONFIRMED, PublishOutcome.UNSENDABLE})
"""Outcomes after which sending the same event again soon is pointless."""


class Dispatch:
    """Sends batches one after the other and counts the outcomes of a cycle."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        pacer: Pacer,
        observer: PulseObserver,
        deadline: timedelta,
        now: Callable[[], datetime],
        random: Callable[[], float],
    ) -> None:
        """`deadline` bounds one attempt to publish a batch, and the time a cycle spends on failed attempts."""
        self._publisher = publisher
        self._pacer = pacer
        self._observer = observer
        self._deadline = deadline
        self._now = now
        self._random = random
        self._is_accepting = False
        self._probes = 0
        self.last_error: str | None = None
        """Why the last event sent was not confirmed, or None if it was."""
        self.begin(Stopping())

    def begin(self, stopping: Stopping) -> None:
        """Begin a cycle. Once stopping is requested, nothing is retried."""
        self._stopping = stopping
        self._retry_budget = self._deadline
        self.is_halted = False
        """Whether the remaining events of this cycle wait for the next one."""
        self.published = self.failed = self.unroutable = self.deferred = 0
        self.error = ""

    async def send(self, batch: Sequence[PendingEvent]) -> None:
        """Send a batch. Return when each event has an outcome or was deferred to a later cycle."""
        remaining = list(batch)
        while remaining and not self.is_halted:
            if self._is_accepting:
                await self._publish(remaining)
                remaining = []
            else:
                # Probe with a different event each time, in case the first is the one that cannot be published.
                await self._publish([remaining.pop(self._probes % len(remaining))])
        self.defer(len(remaining))

    def defer(self, count: int) -> None:
        """Count events that are due but wait for a later cycle."""
        self.deferred += count

    async def _publish(self, batch: Sequence[PendingEvent]) -> None:
        outcomes = [PublishOutcome.UNCONFIRMED] * len(batch)
        seconds: list[float] = []
        unconfirmed = list(range(len(batch)))
        error = ""
        attempt = 0
        now = asyncio.get_running_loop().time
        while True:
            started = now()
            receipt = await self._publisher.publish([batch[n].event for n in unconfirmed], deadline=self._deadline)
            seconds.extend(receipt.seconds)
            for n, outcome in zip(unconfirmed, receipt.outcomes, strict=True):
                outcomes[n] = outcome
            unconfirmed = [n for n in unconfirmed if outcomes[n] is PublishOutcome.UNCONFIRMED]
            # The last error counts; a retry without one does not erase it.
            error = receipt.error or error
            if not unconfirmed or not await self._wait_to_retry(attempt, timedelta(seconds=now() - started)):
                break
            attempt += 1
        self._record_outcomes(batch, outcomes, seconds, error)

    async def _wait_to_retry(self, attempt: int, spent: timedelta) -> bool:
        """Wait for the backoff. Return False if the cycle's retry budget is spent, or on shutdown."""
        delay = _RETRY.delay(attempt, self._random())
        self._retry_budget -= spent + delay
        if self._retry_budget < timedelta(0):
            return False
        return not await self._stopping.interrupts(asyncio.sleep(delay.total_seconds()))

    def _record_outcomes(
        self,
        batch: Sequence[PendingEvent],
        outcomes: Sequence[PublishOutcome],
        seconds: Sequence[float],
        error: str,
    ) -> None:
        now = self._now()
        for pending, outcome in zip(batch, outcomes, strict=True):
            if outcome in _PACED:
                self._pacer.record_published(pending.paced.resource, pending.paced.decision, now)
        confirmed = outcomes.count(PublishOutcome.CONFIRMED)
        unroutable = outcomes.count(PublishOutcome.UNROUTABLE)
        unsendable = outcomes.count(PublishOutcome.UNSENDABLE)
        unconfirmed = outcomes.count(PublishOutcome.UNCONFIRMED)
        refused = len(outcomes) - confirmed - unroutable - unsendable - unconfirmed
        self.published += confirmed
        self.unroutable += unroutable
        self.failed += unsendable + unconfirmed + refused
        if unroutable or unconfirmed or refused:
            self.last_error = self.error = error
        elif confirmed:
            self.last_error = None
        if confirmed and not unroutable:
            self._is_accepting = True
        elif unroutable or refused:
            self._is_accepting = False
            self._probes += 1
        self.is_halted = bool(unroutable or unconfirmed or (refused and not confirmed))
        self._observer.published(PublishedBatch(batch, outcomes, seconds, error))

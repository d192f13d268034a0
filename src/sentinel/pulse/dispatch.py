"""Sending a cycle's events, so that trouble at the broker never multiplies.

Three rules. Until an event has been taken, one probe a poll is all that is sent, so a broker with nothing bound,
or with a queue that is full, is not flooded, nor are the queues beside that one, which get what it refuses. What
is not confirmed is tried again, with backoff, for a bounded time. And when the broker does not answer at all,
sending stops for this cycle: what was not confirmed is due again at the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.publisher import Outcome, Publisher
from sentinel.pulse.report import PendingEvent, PublishedBatch, PulseObserver
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))
_SETTLED = frozenset({Outcome.CONFIRMED, Outcome.UNSENDABLE})
"""Nothing is gained by sending these again soon."""


class Dispatch:
    """Sends batches one after the other and keeps count of a cycle's outcomes."""

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
        """`deadline` bounds one attempt at a batch, and what a cycle spends on attempts that failed."""
        self._publisher = publisher
        self._pacer = pacer
        self._observer = observer
        self._deadline = deadline
        self._now = now
        self._random = random
        self._is_taken = False
        self._probes = 0
        self.trouble: str | None = None
        """Why the last event that was sent did not get through, or None where it did."""
        self.begin(Stopping())

    def begin(self, stopping: Stopping) -> None:
        """Begins a cycle; once stopping is requested, nothing is tried again."""
        self._stopping = stopping
        self._patience = self._deadline
        self.is_halted = False
        """Whether the rest of this cycle is left for the next."""
        self.published = self.failed = self.unroutable = self.deferred = 0
        self.error = ""

    async def send(self, batch: Sequence[PendingEvent]) -> None:
        """Sends a batch; returns when every event of it has an outcome, or was left for a later cycle."""
        rest = list(batch)
        while rest and not self.is_halted:
            if self._is_taken:
                await self._send(rest)
                rest = []
            else:
                # Not always the first: should the fault lie with that one, another proves that all is well.
                await self._send([rest.pop(self._probes % len(rest))])
        self.hold_back(len(rest))

    def hold_back(self, count: int) -> None:
        """Counts events that are due and wait for a later cycle."""
        self.deferred += count

    async def _send(self, batch: Sequence[PendingEvent]) -> None:
        outcomes = [Outcome.UNCONFIRMED] * len(batch)
        seconds: list[float] = []
        open_ones = list(range(len(batch)))
        error = ""
        attempt = 0
        now = asyncio.get_running_loop().time
        while True:
            begun = now()
            receipt = await self._publisher.publish([batch[n].event for n in open_ones], deadline=self._deadline)
            seconds.extend(receipt.seconds)
            for n, outcome in zip(open_ones, receipt.outcomes, strict=True):
                outcomes[n] = outcome
            open_ones = [n for n in open_ones if outcomes[n] is Outcome.UNCONFIRMED]
            # Of several reasons the last one counts, unless it is about events that got through in the end.
            error = receipt.error or error
            if not open_ones or not await self._wait_to_retry(attempt, timedelta(seconds=now() - begun)):
                break
            attempt += 1
        self._settle(batch, outcomes, seconds, error)

    async def _wait_to_retry(self, attempt: int, spent: timedelta) -> bool:
        """Waits out the backoff; false where this cycle's patience is at its end, or the process's."""
        wait = _RETRY.delay(attempt, self._random())
        self._patience -= spent + wait
        if self._patience < timedelta(0):
            return False
        return not await self._stopping.interrupts(asyncio.sleep(wait.total_seconds()))

    def _settle(
        self, batch: Sequence[PendingEvent], outcomes: Sequence[Outcome], seconds: Sequence[float], error: str
    ) -> None:
        now = self._now()
        for pending, outcome in zip(batch, outcomes, strict=True):
            if outcome in _SETTLED:
                self._pacer.settled(pending.judgement.resource, pending.judgement.decision, now)
        confirmed, unroutable = outcomes.count(Outcome.CONFIRMED), outcomes.count(Outcome.UNROUTABLE)
        unsendable, unconfirmed = outcomes.count(Outcome.UNSENDABLE), outcomes.count(Outcome.UNCONFIRMED)
        refused = len(outcomes) - confirmed - unroutable - unsendable - unconfirmed
        self.published += confirmed
        self.unroutable += unroutable
        self.failed += unsendable + unconfirmed + refused
        if unroutable or unconfirmed or refused:
            self.trouble = self.error = error
        elif confirmed:
            self.trouble = None
        if confirmed and not unroutable:
            self._is_taken = True
        elif unroutable or refused:
            self._is_taken = False
            self._probes += 1
        self.is_halted = bool(unroutable or unconfirmed or (refused and not confirmed))
        self._observer.published(PublishedBatch(batch, outcomes, seconds, error))

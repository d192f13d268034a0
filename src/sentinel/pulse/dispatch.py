"""Sending a cycle's events, so that trouble at the broker never multiplies.

Three rules. Until an event has been routed, one probe a poll is all that is sent, so a broker with nothing bound
is not flooded. What the broker refuses or does not confirm is tried again, with backoff, for a bounded time. And
when it does not answer at all, sending stops for this cycle: what was not confirmed is due again at the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from sentinel.core.pacing import Pacer
from sentinel.ports import Outcome, Publisher
from sentinel.pulse.report import Answer, Observer, Pending
from sentinel.runtime.backoff import Backoff

_RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))
_RETRIED = frozenset({Outcome.REFUSED, Outcome.UNCONFIRMED})


class Dispatch:
    """Sends batches one after the other and keeps count of a cycle's outcomes."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        pacer: Pacer,
        observer: Observer,
        deadline: timedelta,
        random: Callable[[], float],
    ) -> None:
        """`deadline` bounds one attempt at a batch, and all the retries of a cycle together."""
        self._publisher = publisher
        self._pacer = pacer
        self._observer = observer
        self._deadline = deadline
        self._random = random
        self._is_routed = False
        self._patience = deadline
        self.trouble: str | None = None
        """Why the last event that was sent did not get through, or None where it did."""
        self.begin()

    def begin(self) -> None:
        """Begins a cycle."""
        self._patience = self._deadline
        self._is_halted = False
        self.published = self.failed = self.unroutable = self.deferred = 0
        self.error = ""

    async def send(self, batch: Sequence[Pending]) -> None:
        """Sends a batch; returns when every event of it has an outcome, or was left for a later cycle."""
        rest = batch
        if rest and not self._is_halted and not self._is_routed:
            await self._send(rest[:1])
            rest = rest[1:]
        if rest and not self._is_halted:
            await self._send(rest)
            rest = ()
        self.hold_back(len(rest))

    def hold_back(self, count: int) -> None:
        """Counts events that are due and wait for a later cycle."""
        self.deferred += count

    async def _send(self, batch: Sequence[Pending]) -> None:
        outcomes = [Outcome.UNCONFIRMED] * len(batch)
        seconds: list[float] = []
        open_ones = list(range(len(batch)))
        error = ""
        attempt = 0
        while True:
            receipt = await self._publisher.publish([batch[n].event for n in open_ones], deadline=self._deadline)
            error = receipt.error
            seconds.extend(receipt.seconds)
            for n, outcome in zip(open_ones, receipt.outcomes, strict=True):
                outcomes[n] = outcome
            open_ones = [n for n in open_ones if outcomes[n] in _RETRIED]
            if not open_ones or not await self._wait_to_retry(attempt):
                break
            attempt += 1
        self._settle(batch, outcomes, seconds, error)

    async def _wait_to_retry(self, attempt: int) -> bool:
        """Waits out the backoff; false where this cycle's patience is at its end."""
        wait = _RETRY.delay(attempt, self._random())
        if wait > self._patience:
            return False
        self._patience -= wait
        await asyncio.sleep(wait.total_seconds())
        return True

    def _settle(
        self, batch: Sequence[Pending], outcomes: Sequence[Outcome], seconds: Sequence[float], error: str
    ) -> None:
        for pending, outcome in zip(batch, outcomes, strict=True):
            if outcome is Outcome.CONFIRMED:
                resource = pending.judgement.resource
                self._pacer.published(resource.id, resource.generation)
        confirmed = outcomes.count(Outcome.CONFIRMED)
        unroutable = outcomes.count(Outcome.UNROUTABLE)
        failed = len(outcomes) - confirmed - unroutable
        self.published += confirmed
        self.unroutable += unroutable
        self.failed += failed
        if confirmed == len(outcomes):
            self._is_routed = True
            self.trouble = None
        else:
            self.trouble = self.error = error or f"the broker answered {outcomes[-1]}"
        if unroutable:
            self._is_routed = False
        if unroutable or Outcome.UNCONFIRMED in outcomes or not confirmed:
            self._is_halted = True
        self._observer.answered(Answer(batch, outcomes, seconds, error))

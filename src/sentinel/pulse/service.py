"""The polling loop: walk the fleet, decide on each resource, publish an event for each that is due.

A cycle streams. While one page is decided on, the next is being fetched and the events of the previous one are
being confirmed, so memory is bounded by the page size. Under a rate limit the pulse publishes only after the walk
has ended, because the most urgent resources are not known earlier.

Between and during cycles, a pulse may follow a stream of changes; see `stream`.

A pulse may be one of several over the same fleet, of which only the leader publishes. The others do everything
else, and record what the leader publishes, so that they continue where it ends.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from sentinel.core.pulse import quiet_pages
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import FetchedResource
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.core.pulse.quiet_pages import NO_DECISIONS, DecisionCounts, QuietPages
from sentinel.core.pulse.rate_limit import MostUrgent, TokenBucket
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FetchError, FleetPage, FleetReader
from sentinel.ports.fleet_stream import FleetStream
from sentinel.ports.publisher import Publisher
from sentinel.pulse.composing import DueResource, EventComposer
from sentinel.pulse.dispatch import Dispatch, SendCounts
from sentinel.pulse.report import CycleReport, PageReport, PendingEvent, PulseObserver
from sentinel.pulse.stream import StreamFollower
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import Span, Tracer

_STUCK_MARGIN = timedelta(seconds=30)
"""Added to the timeouts of one step before liveness reports the loop as stuck."""


class Pulse:
    """The polling loop over one fleet, with its readiness and liveness checks."""

    def __init__(
        self,
        *,
        resource_type: str,
        poll_interval: timedelta,
        policy: Policy,
        pacer: Pacer,
        composer: Composer,
        fleet: FleetReader,
        publisher: Publisher,
        publish_deadline: timedelta,
        clock: Clock,
        observer: PulseObserver,
        tracer: Tracer,
        stream: FleetStream | None = None,
        max_events_per_second: float | None = None,
        step_timeout: timedelta = timedelta(seconds=30),
        may_publish: Callable[[], bool] = lambda: True,
        randomness: Callable[[int], bytes] = secrets.token_bytes,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`step_timeout` bounds the fetch of one page, retries included; liveness allows for it. `may_publish`
        returns whether this pulse is the leader. With a `stream`, also run `follow`."""
        self._resource_type = resource_type
        self._poll_interval = poll_interval
        self._policy = policy
        self._pacer = pacer
        self._quiet_pages = QuietPages(pacer)
        self._composing = EventComposer(resource_type=resource_type, composer=composer, randomness=randomness)
        self._fleet = fleet
        self._publisher = publisher
        self._clock = clock
        self._observer = observer
        self._tracer = tracer
        self._may_publish = may_publish
        self._rate_limit = (
            TokenBucket(per_second=max_events_per_second, poll_interval=poll_interval)
            if max_events_per_second is not None
            else None
        )
        self._dispatch = Dispatch(
            publisher=publisher,
            observer=observer,
            deadline=publish_deadline,
            now=clock.now,
            jitter=jitter,
            may_publish=may_publish,
        )
        self._limited = asyncio.Lock()
        """Held by what may send within the rate limit: a cycle, or a slice of the stream's events."""
        self._follower: StreamFollower | None = None
        if stream is not None:
            self._follower = StreamFollower(
                stream=stream,
                policy=policy,
                pacer=pacer,
                composing=self._composing,
                dispatch=self._dispatch,
                rate_limit=self._rate_limit,
                limited=self._limited,
                clock=clock,
                observer=observer,
                tracer=tracer,
                may_publish=may_publish,
            )
        self._stuck_after = 2 * (poll_interval + step_timeout + publish_deadline) + _STUCK_MARGIN
        self._progress: datetime | None = None
        self._fetch_problem: str | None = "no poll has succeeded yet"

    async def run(self, stopping: Stopping) -> None:
        """Poll until stopped.

        The first cycle starts at once, the next one interval after the previous start. Missed polls are skipped,
        and so are those before the time until which the API asks to wait.
        """
        due = self._clock.now()
        while not stopping.requested:
            wait = timedelta(0)
            try:
                wait = (await self.cycle(stopping)).retry_after
            except Exception as error:  # one failed cycle must not end the polling
                self._fetch_problem = "the last cycle failed with an internal error; see the log"
                self._observer.crashed(error)
            now = self._clock.now()
            # At most one interval from now: a wall clock set back by an hour must not stop the polling.
            due = min(max(due + self._poll_interval, now), now + self._poll_interval)
            due = max(due, now + wait)
            self._progress = max(now, due - self._poll_interval)  # a wait that the API asks for is no standstill
            await stopping.interrupts(self._clock.sleep(due - now))

    async def follow(self, stopping: Stopping) -> None:
        """Follow the stream, if there is one, until stopped. Nothing depends on it: polls find what it misses."""
        if self._follower is None:
            await stopping.wait()
        else:
            await self._follower.run(stopping)

    async def cycle(self, stopping: Stopping) -> CycleReport:
        """Run one cycle: walk the fleet once and publish what is due."""
        if self._rate_limit is None:
            return await self._cycle(stopping)
        async with self._limited:
            return await self._cycle(stopping)

    async def _cycle(self, stopping: Stopping) -> CycleReport:
        started = self._clock.now()
        self._progress = started
        self._pacer.begin_cycle()
        if self._pacer.needs_every_page:
            self._quiet_pages = QuietPages(self._pacer)
        self._quiet_pages.begin_walk()
        self._dispatch.begin(stopping)
        walk = _WalkState()
        with self._tracer.span("sentinel.cycle", resource_type=self._resource_type) as span:
            async with asyncio.TaskGroup() as group:
                await stopping.interrupts(self._walk_fleet(walk, span, group))
            self._pacer.end_cycle(is_complete=walk.is_complete, resources=walk.fetched)
            report = self._report(walk, started)
            span.set(fetched=report.fetched, published=report.published, failed=report.failed)
        if walk.is_complete:
            self._fetch_problem = None
            if self._follower is not None:
                self._follower.walked()
        elif walk.error:
            self._fetch_problem = walk.error
            if report.retry_after:
                resume = timestamp(self._clock.now() + report.retry_after)
                self._fetch_problem += f"; nothing is requested before {resume}"
        self._observer.finished(report)
        return report

    @property
    def checks(self) -> Mapping[str, Callable[[], str | None]]:
        """Readiness checks; each returns None, or what is wrong."""
        return {
            "hyperfleet_api": lambda: self._fetch_problem,
            "broker": self._broker_problem,
        }

    @property
    def liveness(self) -> Mapping[str, Callable[[], str | None]]:
        """Liveness checks: whether the loop makes progress, even if the API or the broker is unreachable."""
        return {"loop": self._check_progress}

    def _broker_problem(self) -> str | None:
        # A follower sends nothing, so an error from the time when it was the leader would stay forever.
        last_error = self._dispatch.last_error if self._may_publish() else None
        return self._publisher.unavailable_reason() or last_error

    def _check_progress(self) -> str | None:
        if self._progress is None or self._clock.now() - self._progress <= self._stuck_after:
            return None
        return f"no progress since {timestamp(self._progress)}"

    async def _walk_fleet(self, walk: _WalkState, span: Span, group: asyncio.TaskGroup) -> None:
        rate_limit = self._rate_limit
        most_urgent = (
            None if rate_limit is None else MostUrgent[DueResource](rate_limit.available(self._clock.now()))
        )
        sending: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._fleet.walk()) as pages:
                async for page in pages:
                    if self._follower is not None and page.has_stream and not walk.has_pages:
                        self._follower.prepare()
                    walk.has_pages = True
                    due = self._decide_page(page, walk)
                    if most_urgent is not None:
                        for resource, paced in due:
                            most_urgent.offer((_detached(resource), paced), paced.decision)
                    elif not self._may_publish():
                        self._withhold(due, walk)
                    elif due:
                        if sending is not None:
                            # Not `await sending`: cancelling this walk must not cancel a batch in flight.
                            await asyncio.wait({sending})
                        sending = group.create_task(self._send(self._compose(due, span.traceparent, walk), walk))
            walk.is_complete = True
        except FetchError as error:
            walk.error = str(error)
            walk.failed_at, walk.retry_after = self._clock.now(), error.retry_after
        if most_urgent is not None and rate_limit is not None:
            walk.sent.defer(most_urgent.left_out)
            await self._send_limited(most_urgent.chosen(), rate_limit, walk, span, group)

    def _decide_page(self, page: FleetPage, walk: _WalkState) -> list[DueResource]:
        now = self._progress = self._clock.now()
        counts = None if self._observer.needs_every_decision else self._quiet_pages.find(page.version, now)
        if counts is not None:
            walk.count(counts)
            self._observer.decided(PageReport((), (), now, counts, page.resources))
            return []
        policy, decide, publish = self._policy, self._pacer.decide, PacingVerdict.PUBLISH
        paced_decisions: list[PacedDecision] = []
        due: list[DueResource] = []
        for resource in page.resources:
            paced = decide(resource.observation, policy, now)
            paced_decisions.append(paced)
            if paced.verdict is publish:
                due.append((resource, paced))
        counts = quiet_pages.count(paced_decisions)
        walk.count(counts)
        walk.malformed += len(page.malformed)
        self._quiet_pages.keep(page.version, paced_decisions, counts, now)
        self._observer.decided(PageReport(paced_decisions, page.malformed, now, counts, page.resources))
        return due

    def _withhold(self, due: Sequence[DueResource], walk: _WalkState) -> None:
        """Record what the leader publishes."""
        now = self._clock.now()
        for _, paced in due:
            self._pacer.record_published(paced.resource, paced.decision, now)
        walk.withheld += len(due)

    def _compose(self, due: Sequence[DueResource], traceparent: str, walk: _WalkState) -> Sequence[PendingEvent]:
        now = self._clock.now()
        composed = self._composing.compose(due, now=now, traceparent=traceparent)
        if composed.malformed:
            walk.malformed += len(composed.malformed)
            self._observer.decided(PageReport((), composed.malformed, now, NO_DECISIONS))
        return composed.pending

    async def _send(self, batch: Sequence[PendingEvent], walk: _WalkState) -> None:
        await self._dispatch.send(batch, counts=walk.sent, record=self._pacer.record_published)

    async def _send_limited(
        self,
        due: Sequence[DueResource],
        rate_limit: TokenBucket,
        walk: _WalkState,
        span: Span,
        group: asyncio.TaskGroup,
    ) -> None:
        """Send in slices with pauses between them, as the rate limit demands."""
        if not self._may_publish():
            self._withhold(due, walk)
            rate_limit.spend(len(due))
            return
        sent = 0
        while sent < len(due) and not self._dispatch.is_halted:
            if sent:
                await self._clock.sleep(rate_limit.pause)
            self._progress = self._clock.now()
            batch = self._compose(due[sent : sent + rate_limit.slice], span.traceparent, walk)
            sent = min(len(due), sent + rate_limit.slice)
            rate_limit.spend(len(batch))
            await asyncio.wait({group.create_task(self._send(batch, walk))})
        walk.sent.defer(len(due) - sent)

    def _report(self, walk: _WalkState, started: datetime) -> CycleReport:
        sent, now = walk.sent, self._clock.now()
        return CycleReport(
            started=started,
            seconds=(now - started).total_seconds(),
            fetched=walk.fetched,
            skipped=walk.skipped,
            published=sent.published,
            paced=walk.paced,
            deferred=sent.deferred,
            failed=sent.failed,
            unroutable=sent.unroutable,
            malformed=walk.malformed,
            withheld=walk.withheld,
            is_complete=walk.is_complete,
            fetch_error=walk.error,
            retry_after=walk.remaining_wait(now),
            broker_error=sent.error,
            broker_unavailable=self._publisher.unavailable_reason() or "",
        )


class _WalkState:
    """The counts of a walk so far, and how it ended."""

    def __init__(self) -> None:
        self.fetched = self.skipped = self.paced = self.malformed = self.withheld = 0
        self.sent = SendCounts()
        self.is_complete = False
        self.has_pages = False
        """Whether the first page has been read."""
        self.error = ""
        self.failed_at: datetime | None = None
        self.retry_after = timedelta(0)
        """How long the API asked to wait, counted from `failed_at`."""

    def remaining_wait(self, now: datetime) -> timedelta:
        """How long to wait from now. Never longer than the API asked for, even if the clock was set back."""
        if self.failed_at is None:
            return timedelta(0)
        return min(self.retry_after, max(timedelta(0), self.failed_at + self.retry_after - now))

    def count(self, counts: DecisionCounts) -> None:
        self.fetched += counts.decided
        self.skipped += counts.skipped
        self.paced += counts.paced


def _detached(resource: FetchedResource) -> FetchedResource:
    """Return a copy that does not keep the page in memory; the document is a view of it."""
    return FetchedResource(resource.observation, resource.document.copy())

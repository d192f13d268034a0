"""Following a stream of changes: a changed spec becomes an event at once, instead of at the next poll.

The stream is an addition to the polls, which stay as they are: what it does not bring, they find. It begins after
the first complete walk of a fleet whose server has streams. A change that polls have not seen goes through the
same decision, pacing, composing and publishing (`core.pulse.streamed` says which changes those are). What cannot
be published at once, because of the rate limit or the broker, is left to the next poll.

What arrives while a batch is being published waits in the connection, so memory does not grow with the changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import assert_never

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import FetchedResource, MalformedItem
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.core.pulse.rate_limit import TokenBucket
from sentinel.ports.clock import Clock
from sentinel.ports.fleet_stream import (
    Changed,
    Connected,
    Disconnected,
    FleetStream,
    Removed,
    StreamItem,
    Synced,
    Unreadable,
)
from sentinel.pulse.composing import DueResource, EventComposer
from sentinel.pulse.dispatch import Dispatch, SendCounts
from sentinel.pulse.report import PulseObserver, StreamReport
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import Tracer

_AFTER_CRASH = timedelta(seconds=10)


class StreamFollower:
    """Publishes the changes of a stream, beside the cycles of a pulse."""

    def __init__(
        self,
        *,
        stream: FleetStream,
        policy: Policy,
        pacer: Pacer,
        composing: EventComposer,
        dispatch: Dispatch,
        rate_limit: TokenBucket | None,
        limited: asyncio.Lock,
        clock: Clock,
        observer: PulseObserver,
        tracer: Tracer,
        may_publish: Callable[[], bool],
    ) -> None:
        """Everything but the stream is shared with the cycles. With a rate limit, `limited` is held while events
        are sent."""
        self._stream = stream
        self._policy = policy
        self._pacer = pacer
        self._composing = composing
        self._dispatch = dispatch
        self._rate_limit = rate_limit
        self._limited = limited
        self._clock = clock
        self._observer = observer
        self._tracer = tracer
        self._may_publish = may_publish
        self._is_prepared = False
        self._has_begun = asyncio.Event()
        self._stopping = Stopping()

    def prepare(self) -> None:
        """The server has streams: remember what polls see, from the first page of this walk on. Idempotent."""
        if not self._is_prepared:
            self._is_prepared = True
            self._pacer.follow_stream(follows_progress=self._policy.follows_progress)

    def walked(self) -> None:
        """Polls have seen every resource: begin to follow, if the server has streams. Idempotent."""
        if self._is_prepared:
            self._has_begun.set()

    async def run(self, stopping: Stopping) -> None:
        """Follow the stream until stopped. Events in flight are awaited."""
        self._stopping = stopping
        await stopping.interrupts(self._has_begun.wait())
        while not stopping.requested:
            try:
                async with asyncio.TaskGroup() as group:
                    await stopping.interrupts(self._follow(group))
            except Exception as error:  # an error must not end the following, and polls go on anyway
                self._observer.crashed(error)
            await stopping.interrupts(self._clock.sleep(_AFTER_CRASH))

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        async with aclosing(self._stream.follow()) as batches:
            async for batch in batches:
                # Not awaited directly: stopping must not cancel a batch in flight.
                await asyncio.wait({group.create_task(self._take(batch))})

    async def _take(self, batch: Sequence[StreamItem]) -> None:
        arrived = _Arrived(batch)
        decided: list[PacedDecision] = []
        due: list[DueResource] = []
        malformed = arrived.malformed
        sent = SendCounts()
        # A follower of a leader publishes nothing, and its polls record what the leader publishes.
        if self._may_publish():
            now = self._clock.now()
            for resource in arrived.changed.values():
                paced = self._pacer.decide_streamed(resource.observation, self._policy, now)
                if paced is not None:
                    decided.append(paced)
                    if paced.verdict is PacingVerdict.PUBLISH:
                        due.append((resource, paced))
        try:
            if due:
                malformed += await self._send(due, sent)
        finally:
            for _, paced in due:
                self._pacer.end_streamed(paced.resource)
        self._observer.streamed(
            StreamReport(
                changed=arrived.changes,
                removed=arrived.removals,
                synced=arrived.syncs,
                malformed=malformed,
                decided=decided,
                published=sent.published,
                deferred=sent.deferred,
                connection=arrived.connection,
            )
        )

    async def _send(self, due: Sequence[DueResource], sent: SendCounts) -> Sequence[MalformedItem]:
        """Send events for changes, and return those resources that have none."""
        with self._tracer.span("sentinel.stream", changes=len(due)) as span:
            composed = self._composing.compose(due, now=self._clock.now(), traceparent=span.traceparent)
            remaining = composed.pending
            if self._rate_limit is None:
                await self._dispatch.send(remaining, counts=sent, record=self._pacer.record_streamed)
                return composed.malformed
            while remaining:
                async with self._limited:
                    size = min(self._rate_limit.slice, self._rate_limit.available(self._clock.now()))
                    if size < 1 or self._dispatch.is_halted:
                        break
                    self._rate_limit.spend(len(remaining[:size]))
                    await self._dispatch.send(remaining[:size], counts=sent, record=self._pacer.record_streamed)
                remaining = remaining[size:]
                # Also after the last slice: the next batch may be there already.
                if await self._stopping.interrupts(self._clock.sleep(self._rate_limit.pause)):
                    break
            sent.defer(len(remaining))
            return composed.malformed


class _Arrived:
    """The items of one batch. Of several changes of one resource only the last counts."""

    def __init__(self, batch: Iterable[StreamItem]) -> None:
        self.changed: dict[str, FetchedResource] = {}
        self.malformed: list[MalformedItem] = []
        self.changes = self.removals = self.syncs = 0
        self.connection: Connected | Disconnected | None = None
        for item in batch:
            match item:
                case Changed():
                    self.changes += 1
                    self._add(item.resource)
                case Removed():
                    self.removals += 1
                    self.changed.pop(item.id, None)
                case Synced():
                    self.syncs += 1
                case Unreadable():
                    self.malformed.append(item.item)
                case Connected() | Disconnected():
                    self.connection = item
                case _:
                    assert_never(item)

    def _add(self, resource: FetchedResource) -> None:
        seen = resource.observation
        earlier = self.changed.get(seen.id)
        # A repeated change may be older than the one before it.
        if earlier is None or earlier.observation.generation <= seen.generation:
            self.changed[seen.id] = resource

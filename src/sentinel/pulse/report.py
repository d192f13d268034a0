"""The values that a pulse reports about its work.

The pulse hands them to an observer. Logs, metrics and the live view are rendered from these values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from sentinel.core.events import Event
from sentinel.core.pulse.observation import FetchedResource, MalformedItem
from sentinel.core.pulse.pacing import PacedDecision
from sentinel.core.pulse.quiet_pages import DecisionCounts
from sentinel.ports.fleet_stream import Connected, Disconnected
from sentinel.ports.publisher import PublishOutcome
from sentinel.runtime.observers import Observers


class PageReport(msgspec.Struct, frozen=True):
    """The decisions on one page."""

    paced_decisions: Sequence[PacedDecision]
    """Empty if they are the same as at the last poll, unless the observer `needs_every_decision`."""
    malformed: Sequence[MalformedItem]
    at: datetime
    counts: DecisionCounts
    resources: Sequence[FetchedResource] = ()
    """The resources, aligned with `paced_decisions` if those are given, for observers that read whole documents.
    Do not keep them: each holds its page in memory."""


class PendingEvent(msgspec.Struct, frozen=True):
    """An event to publish, and the decision that caused it."""

    paced: PacedDecision
    event: Event
    missing: tuple[str, ...] = ()
    """Fields of its data that are empty because the resource lacks the value."""
    failed: tuple[tuple[str, str], ...] = ()
    """Fields of its data that are empty because they could not be evaluated, each with the reason."""


class PublishedBatch(msgspec.Struct, frozen=True):
    """A batch with its final outcomes, after all retries; aligned."""

    pending: Sequence[PendingEvent]
    outcomes: Sequence[PublishOutcome]
    seconds: Sequence[float]
    error: str


class CycleReport(msgspec.Struct, frozen=True):
    """The totals of one cycle."""

    started: datetime
    seconds: float
    fetched: int
    skipped: int
    published: int
    paced: int
    deferred: int
    """Due, but left for a later cycle by the rate limit or because of a broker error."""
    failed: int
    """Sent, but refused or not confirmed."""
    unroutable: int
    malformed: int
    is_complete: bool
    """Whether the walk reached the end of the fleet."""
    fetch_error: str = ""
    retry_after: timedelta = timedelta(0)
    """How long the API wants no requests, from the end of the cycle."""
    broker_error: str = ""
    """Why an event was not confirmed."""
    broker_unavailable: str = ""
    """Why no event can be sent at the end of the cycle, even if none was due."""
    withheld: int = 0
    """Due, but left to the leader, because this pulse follows one."""


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has brought, and what became of it."""

    changed: int = 0
    removed: int = 0
    synced: int = 0
    """How many times the stream was in sync with the fleet after it had begun."""
    malformed: Sequence[MalformedItem] = ()
    decided: Sequence[PacedDecision] = ()
    """The decisions on changes that are news."""
    published: int = 0
    deferred: int = 0
    """Due, but left for the next poll by the rate limit or because of a broker error."""
    connection: Connected | Disconnected | None = None
    """How the connection has changed, if it has."""


class PulseObserver(Protocol):
    """Receives the reports of a pulse. Calls run in the pulse's own task and must be short."""

    @property
    def needs_every_decision(self) -> bool:
        """Whether reports on pages include decisions that are the same as at the last poll, which is expensive."""

    def decided(self, page: PageReport) -> None: ...

    def published(self, batch: PublishedBatch) -> None: ...

    def finished(self, report: CycleReport) -> None: ...

    def streamed(self, report: StreamReport) -> None:
        """A stream has brought something. It may come during a cycle. Published events were reported before."""

    def crashed(self, error: BaseException) -> None:
        """A cycle raised an unexpected error; the next one still runs. So did what follows a stream."""


class PulseObservers(Observers[PulseObserver]):
    """Several observers as one."""

    @property
    def needs_every_decision(self) -> bool:
        return any(observer.needs_every_decision for observer in self._observers)

    def decided(self, page: PageReport) -> None:
        self._each(lambda observer: observer.decided(page))

    def published(self, batch: PublishedBatch) -> None:
        self._each(lambda observer: observer.published(batch))

    def finished(self, report: CycleReport) -> None:
        self._each(lambda observer: observer.finished(report))

    def streamed(self, report: StreamReport) -> None:
        self._each(lambda observer: observer.streamed(report))

    def crashed(self, error: BaseException) -> None:
        self._each(lambda observer: observer.crashed(error))

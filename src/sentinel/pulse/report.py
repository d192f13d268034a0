"""What a cycle tells about itself.

The pulse does its work and hands these values to an observer; logs, metrics and the live view are all rendered
from them, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Decision
from sentinel.core.pulse.observation import FetchedResource, Observation
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.publisher import Outcome
from sentinel.runtime.log import Log


class PacedDecision(msgspec.Struct, frozen=True, gc=False):
    """One resource, the decision on it, and what becomes of it in this cycle."""

    resource: Observation
    decision: Decision
    verdict: PacingVerdict


class PageReport(msgspec.Struct, frozen=True):
    """A page, judged."""

    judgements: Sequence[PacedDecision]
    malformed: Sequence[str]
    at: datetime
    resources: Sequence[FetchedResource] = ()
    """The resources judged, aligned, for whoever wants more of them than the decision read. Do not keep them: each
    is a window on its page."""


class PendingEvent(msgspec.Struct, frozen=True):
    """An event that is to be sent, and for whom."""

    judgement: PacedDecision
    event: Event
    missing: tuple[str, ...] = ()
    """Fields of its data that are empty because the resource lacks what they name."""
    failed: tuple[tuple[str, str], ...] = ()
    """Fields of its data that are empty because they could not be evaluated, each with the reason."""


class PublishedBatch(msgspec.Struct, frozen=True):
    """What the broker finally said to a batch; aligned, retries behind it."""

    pending: Sequence[PendingEvent]
    outcomes: Sequence[Outcome]
    seconds: Sequence[float]
    error: str


class CycleReport(msgspec.Struct, frozen=True):
    """A whole cycle."""

    started: datetime
    seconds: float
    fetched: int
    skipped: int
    published: int
    paced: int
    deferred: int
    """Due, and held back for a later cycle: by the ceiling, or because the broker is in trouble."""
    failed: int
    """Sent, and refused or not confirmed."""
    unroutable: int
    malformed: int
    is_complete: bool
    """Whether the walk reached the end of the fleet."""
    fetch_error: str = ""
    broker_error: str = ""


class PulseObserver(Protocol):
    """Whoever wants to know. Calls come from the pulse's own task and should be short."""

    def judged(self, page: PageReport) -> None: ...

    def published(self, batch: PublishedBatch) -> None: ...

    def finished(self, report: CycleReport) -> None: ...

    def crashed(self, error: BaseException) -> None:
        """A cycle ended by a fault of our own; the next one runs all the same."""


class PulseObservers:
    """Several observers as one. What one of them does wrong is its own affair: the others and the pulse go on."""

    def __init__(self, *observers: PulseObserver, log: Log) -> None:
        self._observers = observers
        self._log = log

    def judged(self, page: PageReport) -> None:
        self._each(lambda observer: observer.judged(page))

    def published(self, batch: PublishedBatch) -> None:
        self._each(lambda observer: observer.published(batch))

    def finished(self, report: CycleReport) -> None:
        self._each(lambda observer: observer.finished(report))

    def crashed(self, error: BaseException) -> None:
        self._each(lambda observer: observer.crashed(error))

    def _each(self, tell: Callable[[PulseObserver], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as error:
                self._log.unexpected("observer.failed", observer=type(observer).__name__, error=error)

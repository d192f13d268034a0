"""What an adapter at work tells about itself.

The service does its work and hands these values to an observer; logs, metrics and the live view are all rendered
from them, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.adapter.api_gate import ApiOperation
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Ending
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.log import Log


class SkipReason(StrEnum):
    """Why events were acknowledged without an evaluation."""

    FRESH = "fresh"
    """Our last report is about this generation and recent enough."""
    GONE = "gone"
    """There is no such resource any more."""
    OTHER_KIND = "other_kind"
    """This adapter does nothing for resources of that kind."""


class ReportDisposition(StrEnum):
    """What the API made of a report."""

    STORED = "stored"
    DISCARDED = "discarded"
    GONE = "gone"
    REFUSED = "refused"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation, before its report is sent."""

    resource: Resource
    ending: Ending
    reason: str
    message: str
    duration: timedelta
    events: int
    """How many events it answers."""
    error: BaseException | None = None
    """What the task raised."""
    is_lingering: bool = False
    """The task ignores that it was cancelled."""


class AdapterObserver(Protocol):
    """Whoever wants to know. Calls come from the service's own tasks and should be short."""

    def dequeued(self, queue_age: timedelta) -> None:
        """A resource is looked at; the oldest event that asks for it is so old."""

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        """Events were acknowledged without an evaluation."""

    def started(self) -> None:
        """An evaluation begins."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """An evaluation is over."""

    def interrupted(self) -> None:
        """An evaluation was cut off, because the service ends; nothing is reported."""

    def reported(self, resource: Resource, answer: ReportDisposition, detail: DiscardReason | str | None) -> None:
        """A report was answered; with why it was discarded or refused."""

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        """A message was given up."""

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        """Events were given back to the broker, to be delivered again."""

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        """The API has begun to fail, or fails in another way than before."""

    def api_recovered(self, operation: ApiOperation) -> None: ...

    def crashed(self, resource_id: str, error: BaseException) -> None:
        """A fault of our own; the events are given back to the broker."""


class AdapterObservers:
    """Several observers as one. What one of them does wrong is its own affair: the others and the work go on."""

    def __init__(self, *observers: AdapterObserver, log: Log) -> None:
        self._observers = observers
        self._log = log

    def dequeued(self, queue_age: timedelta) -> None:
        self._each(lambda observer: observer.dequeued(queue_age))

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        self._each(lambda observer: observer.skipped(reason, resource_id, events))

    def started(self) -> None:
        self._each(lambda observer: observer.started())

    def evaluated(self, evaluation: Evaluation) -> None:
        self._each(lambda observer: observer.evaluated(evaluation))

    def interrupted(self) -> None:
        self._each(lambda observer: observer.interrupted())

    def reported(self, resource: Resource, answer: ReportDisposition, detail: DiscardReason | str | None) -> None:
        self._each(lambda observer: observer.reported(resource, answer, detail))

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self._each(lambda observer: observer.dead_lettered(reason, event_id, resource_id))

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._each(lambda observer: observer.nacked(reason, resource_id, events))

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        self._each(lambda observer: observer.api_failed(operation, trouble))

    def api_recovered(self, operation: ApiOperation) -> None:
        self._each(lambda observer: observer.api_recovered(operation))

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._each(lambda observer: observer.crashed(resource_id, error))

    def _each(self, tell: Callable[[AdapterObserver], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as error:
                self._log.unexpected("observer.failed", observer=type(observer).__name__, error=error)

"""The values that an adapter's service hands to its observers.

Logs, metrics and the live view of `sentinel up` are rendered from them, and from nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.ports.adapter_api import ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.observers import Observers


class ApiOperation(StrEnum):
    """A call to the API. One may work while the other fails."""

    READ = "read"
    REPORT = "report"


class SkipReason(StrEnum):
    """Why events were acknowledged without an evaluation.

    - `FRESH`: our last report is about this generation and recent enough.
    - `GONE`: the resource does not exist any more.
    - `OTHER_KIND`: this adapter does not handle resources of that kind.
    """

    FRESH = "fresh"
    GONE = "gone"
    OTHER_KIND = "other_kind"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation, before its report is sent.

    A lingering task ignores its cancellation and still runs.
    """

    resource: Resource
    outcome: OutcomeKind
    reason: str
    message: str
    duration: timedelta
    events: int
    """How many events this evaluation handles."""
    error: BaseException | None = None
    """The exception that the task raised."""
    is_lingering: bool = False


class AdapterObserver(Protocol):
    """An observer of an adapter. The service's tasks call it, so methods must not block."""

    def dequeued(self, queue_age: timedelta) -> None:
        """A worker starts on a resource; `queue_age` is the age of its oldest event."""

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        """Events were acknowledged without an evaluation."""

    def started(self) -> None:
        """An evaluation starts."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """An evaluation has ended."""

    def interrupted(self) -> None:
        """An evaluation was cancelled because the service stops; there will be no report."""

    def reported(self, resource: Resource, result: ReportResult) -> None:
        """The API responded to a report."""

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        """An event was dead-lettered."""

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        """Events were nacked because the API failed; the broker will deliver them again."""

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        """Calls to the API start to fail, or fail with another error than before."""

    def api_recovered(self, operation: ApiOperation) -> None: ...

    def crashed(self, resource_id: str, error: BaseException) -> None:
        """The service itself failed on a resource, which is a bug; the events were nacked."""


class AdapterObservers(Observers[AdapterObserver]):
    """Several observers as one."""

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

    def reported(self, resource: Resource, result: ReportResult) -> None:
        self._each(lambda observer: observer.reported(resource, result))

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self._each(lambda observer: observer.dead_lettered(reason, event_id, resource_id))

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._each(lambda observer: observer.nacked(reason, resource_id, events))

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        self._each(lambda observer: observer.api_failed(operation, error))

    def api_recovered(self, operation: ApiOperation) -> None:
        self._each(lambda observer: observer.api_recovered(operation))

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._each(lambda observer: observer.crashed(resource_id, error))

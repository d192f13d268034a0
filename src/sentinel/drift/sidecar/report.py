"""What a sidecar reports to its observers: judgements, triggers, and what went wrong with them."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.drift.conflicts import Conflict
from sentinel.core.drift.judgement import Judgement
from sentinel.core.drift.schedule import Acknowledged, Batch
from sentinel.core.drift.trigger import DriftMode
from sentinel.ports.kube import (
    AlreadyExists,
    Forbidden,
    InvalidObject,
    KubeError,
    KubeUnavailable,
    ObjectNotFound,
    Unauthorized,
)
from sentinel.ports.kube import Conflict as WriteConflict
from sentinel.runtime.observers import Observers


class FailureClass(StrEnum):
    """Why a trigger could not be written. A closed set: it is a metric label."""

    CONFLICT = "conflict"
    """409."""
    THROTTLED = "throttled"
    """429."""
    SERVER_ERROR = "server_error"
    """5xx."""
    UNREACHABLE = "unreachable"
    """No connection, or no response in time."""
    FORBIDDEN = "forbidden"
    """403: RBAC or the admission policy."""
    INVALID = "invalid"
    """400 or 422: the API server, or a policy, does not accept the patch."""
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    """404: there is no such cluster."""
    OTHER = "other"

    @property
    def is_transient(self) -> bool:
        """Whether it usually passes by itself. The others need a person, so they are retried slowly."""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {FailureClass.CONFLICT, FailureClass.THROTTLED, FailureClass.SERVER_ERROR, FailureClass.UNREACHABLE}
)


def classify(error: BaseException) -> FailureClass:
    """Return why a write failed."""
    match error:
        case KubeUnavailable(status=429):
            return FailureClass.THROTTLED
        case KubeUnavailable(status=0) | TimeoutError():
            return FailureClass.UNREACHABLE
        case KubeUnavailable():
            return FailureClass.SERVER_ERROR
        case WriteConflict() | AlreadyExists():
            return FailureClass.CONFLICT
        case Forbidden():
            return FailureClass.FORBIDDEN
        case InvalidObject():
            return FailureClass.INVALID
        case Unauthorized():
            return FailureClass.UNAUTHORIZED
        case ObjectNotFound():
            return FailureClass.NOT_FOUND
        case KubeError(status=status) if status >= 500:
            return FailureClass.SERVER_ERROR
        case _:
            return FailureClass.OTHER


class Judged(msgspec.Struct, frozen=True):
    """An event of a watch was judged."""

    judgement: Judgement
    mode: DriftMode
    is_maintenance: bool
    """Whether triggers wait for the end of a maintenance."""


class Triggered(msgspec.Struct, frozen=True):
    """A trigger was written."""

    value: str
    batch: Batch
    is_repeated: bool
    """The operator did not acknowledge the last one."""
    latency: timedelta
    """The time since the first event of the burst."""


class TriggerFailed(msgspec.Struct, frozen=True):
    """A trigger could not be written. It is tried again."""

    failure: FailureClass
    error: BaseException
    failures: int
    """The number of failures in a row."""
    retry_in: timedelta


class ConflictFound(msgspec.Struct, frozen=True):
    """Someone keeps changing what the operator corrects, so the next correction waits."""

    conflict: Conflict
    judgement: Judgement


class DriftObserver(Protocol):
    """Gets reports. It returns quickly and does no I/O."""

    def judged(self, report: Judged) -> None: ...

    def triggered(self, report: Triggered) -> None: ...

    def trigger_failed(self, report: TriggerFailed) -> None: ...

    def acknowledged(self, report: Acknowledged) -> None: ...

    def outstanding_changed(self, has_outstanding: bool) -> None:
        """Whether the operator has yet to clear a trigger has changed. It begins with False."""

    def conflict_found(self, report: ConflictFound) -> None: ...

    def relisted(self) -> None:
        """All objects of a kind were listed again: changes may have been missed, and were looked for."""


class DriftObservers(Observers[DriftObserver]):
    """Several observers as one."""

    def judged(self, report: Judged) -> None:
        self._each(lambda observer: observer.judged(report))

    def triggered(self, report: Triggered) -> None:
        self._each(lambda observer: observer.triggered(report))

    def trigger_failed(self, report: TriggerFailed) -> None:
        self._each(lambda observer: observer.trigger_failed(report))

    def acknowledged(self, report: Acknowledged) -> None:
        self._each(lambda observer: observer.acknowledged(report))

    def outstanding_changed(self, has_outstanding: bool) -> None:
        self._each(lambda observer: observer.outstanding_changed(has_outstanding))

    def conflict_found(self, report: ConflictFound) -> None:
        self._each(lambda observer: observer.conflict_found(report))

    def relisted(self) -> None:
        self._each(lambda observer: observer.relisted())

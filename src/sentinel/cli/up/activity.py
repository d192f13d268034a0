"""The activity feed of `sentinel up`: what pulses and adapters did to which resource, with what result.

Plain lines and the live view are both rendered from these values, so they always agree.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.times import timestamp
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport


class ActivityLevel(StrEnum):
    """How an activity went, which the live view shows as its color.

    `PENDING` is an evaluation that waits: it is in progress, or its preconditions are not met.
    """

    INFO = "info"
    SUCCESS = "success"
    PENDING = "pending"
    ERROR = "error"


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the feed.

    The source is `pulse`, `fleet`, `demo`, or the name of an adapter. The name is that of the resource, if known.
    """

    at: datetime
    source: str
    text: str
    resource_id: str = ""
    name: str = ""
    level: ActivityLevel = ActivityLevel.INFO
    is_evaluation: bool = False


OnActivity: TypeAlias = Callable[[Activity], None]


def format_line(activity: Activity) -> str:
    """Render an activity as a line: time, source, resource, text."""
    name = f" ({activity.name})" if activity.name else ""
    subject = f" {activity.resource_id}{name}" if activity.resource_id else ""
    return f"{timestamp(activity.at.replace(microsecond=0))} {activity.source}{subject}: {activity.text}"


def _internal_error(error: BaseException) -> str:
    # Without the error's text, which may contain secrets; only the log redacts them.
    return f"internal error ({type(error).__name__}); see the log"


class PulseActivityObserver:
    """`pulse.report.PulseObserver` of one pulse: emits every event, and errors when they begin or change."""

    needs_every_decision = False

    def __init__(self, *, resource_type: str, on_activity: OnActivity, clock: Clock) -> None:
        self._resource_type = resource_type
        self._on_activity = on_activity
        self._clock = clock
        self._errors: tuple[str, ...] = ()

    def decided(self, page: PageReport) -> None:
        """Ignored: only published events are shown."""

    def published(self, batch: PublishedBatch) -> None:
        at = self._clock.now()
        for pending, outcome in zip(batch.pending, batch.outcomes, strict=True):
            resource, reason = pending.paced.resource, pending.paced.decision.reason
            is_confirmed = outcome is PublishOutcome.CONFIRMED
            self._on_activity(
                Activity(
                    at=at,
                    source="pulse",
                    resource_id=resource.id,
                    text=f"{reason} (generation {resource.generation}, observed {resource.observed_generation})"
                    + ("" if is_confirmed else f": {outcome}"),
                    level=ActivityLevel.INFO if is_confirmed else ActivityLevel.ERROR,
                )
            )

    def finished(self, report: CycleReport) -> None:
        errors = tuple(error for error in (report.fetch_error, report.broker_error) if error)
        for error in errors:
            if error not in self._errors:
                self._emit_error(error)
        self._errors = errors

    def streamed(self, report: StreamReport) -> None: ...

    def crashed(self, error: BaseException) -> None:
        self._emit_error(_internal_error(error))

    def _emit_error(self, error: str) -> None:
        text = f"{self._resource_type}: {error}"
        self._on_activity(Activity(at=self._clock.now(), source="pulse", text=text, level=ActivityLevel.ERROR))


class AdapterActivityObserver:
    """`adapter.observer.AdapterObserver` of one adapter: emits every evaluation, and errors."""

    def __init__(self, *, adapter: str, on_activity: OnActivity, clock: Clock) -> None:
        self._adapter = adapter
        self._on_activity = on_activity
        self._clock = clock

    def dequeued(self, queue_age: timedelta) -> None:
        """Ignored: the evaluation is shown."""

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        """Ignored: nothing was done."""

    def started(self) -> None:
        """Ignored: the result is shown."""

    def evaluated(self, evaluation: Evaluation) -> None:
        text, level = _OUTCOMES[evaluation.outcome]
        resource = evaluation.resource
        self._on_activity(
            Activity(
                at=self._clock.now(),
                source=self._adapter,
                resource_id=resource.id,
                name=resource.name,
                text=f"{text}: {evaluation.message}" if evaluation.message else text,
                level=level,
                is_evaluation=True,
            )
        )

    def interrupted(self) -> None:
        """Ignored: it happens only at shutdown."""

    def reported(self, resource: Resource, result: ReportResult) -> None:
        if result.outcome is ReportOutcome.REFUSED:
            self._emit_error(f"the API refused the report: {result.reason}", resource.id)

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self._emit_error(f"dead-lettered an event: {reason}", resource_id)

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._emit_error(f"requeued events: {reason}", resource_id)

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        self._emit_error(f"cannot {operation}: {error}")

    def api_recovered(self, operation: ApiOperation) -> None:
        self._emit(f"can {operation} again", ActivityLevel.SUCCESS)

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._emit_error(_internal_error(error), resource_id)

    def _emit_error(self, text: str, resource_id: str = "") -> None:
        self._emit(text, ActivityLevel.ERROR, resource_id)

    def _emit(self, text: str, level: ActivityLevel, resource_id: str = "") -> None:
        at = self._clock.now()
        self._on_activity(Activity(at=at, source=self._adapter, resource_id=resource_id, text=text, level=level))


_OUTCOMES = {
    OutcomeKind.DONE: ("done", ActivityLevel.SUCCESS),
    OutcomeKind.FINALIZED: ("finalized", ActivityLevel.SUCCESS),
    OutcomeKind.IN_PROGRESS: ("in progress", ActivityLevel.PENDING),
    OutcomeKind.PRECONDITIONS_NOT_MET: ("preconditions not met", ActivityLevel.PENDING),
    OutcomeKind.FAILED: ("failed", ActivityLevel.ERROR),
    OutcomeKind.BROKEN: ("broken", ActivityLevel.ERROR),
}

"""What pulses and adapters report, told as happenings: who did what to which resource, and how it went.

Both views of `sentinel up`, lines and screen, are made of these and of nothing else, so they cannot differ in what
they say.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec

from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.publisher import Outcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch


class Tone(StrEnum):
    """How a happening sounds."""

    PLAIN = "plain"
    GOOD = "good"
    WAITING = "waiting"
    BAD = "bad"


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody may want to see."""

    at: datetime
    source: str
    """`pulse`, the name of an adapter, `fleet` or `demo`."""
    text: str
    resource_id: str = ""
    name: str = ""
    """Of the resource, where it is known."""
    tone: Tone = Tone.PLAIN
    is_evaluation: bool = False


Tell: TypeAlias = Callable[[Activity], None]


class PulseNarrator:
    """`pulse.report.Observer` of one pulse: tells of every event, and of trouble when it begins or changes."""

    def __init__(self, *, resource_type: str, tell: Tell, clock: Clock) -> None:
        self._resource_type = resource_type
        self._tell = tell
        self._clock = clock
        self._troubles: tuple[str, ...] = ()

    def judged(self, page: PageReport) -> None:
        """Only what is sent is told."""

    def published(self, batch: PublishedBatch) -> None:
        at = self._clock.now()
        for pending, outcome in zip(batch.pending, batch.outcomes, strict=True):
            seen, reason = pending.judgement.resource, pending.judgement.decision.reason
            is_confirmed = outcome is Outcome.CONFIRMED
            self._tell(
                Activity(
                    at=at,
                    source="pulse",
                    resource_id=seen.id,
                    text=f"{reason} (generation {seen.generation}, observed {seen.observed_generation})"
                    + ("" if is_confirmed else f": {outcome}"),
                    tone=Tone.PLAIN if is_confirmed else Tone.BAD,
                )
            )

    def finished(self, report: CycleReport) -> None:
        troubles = tuple(trouble for trouble in (report.fetch_error, report.broker_error) if trouble)
        for trouble in troubles:
            if trouble not in self._troubles:
                self._say(trouble)
        self._troubles = troubles

    def crashed(self, error: BaseException) -> None:
        # Its text stays in the log, which is redacted.
        self._say(f"a fault of our own ({type(error).__name__}); the log has it")

    def _say(self, trouble: str) -> None:
        text = f"{self._resource_type}: {trouble}"
        self._tell(Activity(at=self._clock.now(), source="pulse", text=text, tone=Tone.BAD))


class AdapterNarrator:
    """`adapter.observer.Observer` of one adapter: tells of every evaluation, and of trouble."""

    def __init__(self, *, adapter: str, tell: Tell, clock: Clock) -> None:
        self._adapter = adapter
        self._tell = tell
        self._clock = clock

    def dequeued(self, queue_age: timedelta) -> None:
        """The evaluation is told, not its beginning."""

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        """Nothing happened."""

    def started(self) -> None:
        """The end is told."""

    def evaluated(self, evaluation: Evaluation) -> None:
        words, tone = _ending(evaluation.ending)
        resource = evaluation.resource
        self._tell(
            Activity(
                at=self._clock.now(),
                source=self._adapter,
                resource_id=resource.id,
                name=resource.name,
                text=f"{words}: {evaluation.message}" if evaluation.message else words,
                tone=tone,
                is_evaluation=True,
            )
        )

    def interrupted(self) -> None:
        """The end of everything is told elsewhere."""

    def reported(self, resource: Resource, result: ReportResult) -> None:
        if result.outcome is ReportOutcome.REFUSED:
            self._say(f"the API refused the report: {result.reason}", Tone.BAD, resource.id)

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self._say(f"gave up an event: {reason}", Tone.BAD, resource_id)

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._say(f"gave back events: {reason}", Tone.BAD, resource_id)

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        self._say(f"cannot {operation}: {trouble}", Tone.BAD)

    def api_recovered(self, operation: ApiOperation) -> None:
        self._say(f"can {operation} again", Tone.GOOD)

    def crashed(self, resource_id: str, error: BaseException) -> None:
        text = f"a fault of our own ({type(error).__name__}); the log has it"
        self._say(text, Tone.BAD, resource_id)

    def _say(self, text: str, tone: Tone, resource_id: str = "") -> None:
        at = self._clock.now()
        self._tell(Activity(at=at, source=self._adapter, resource_id=resource_id, text=text, tone=tone))


def _ending(ending: OutcomeKind) -> tuple[str, Tone]:
    match ending:
        case OutcomeKind.DONE:
            return "done", Tone.GOOD
        case OutcomeKind.FINALIZED:
            return "finalised", Tone.GOOD
        case OutcomeKind.IN_PROGRESS:
            return "in progress", Tone.WAITING
        case OutcomeKind.PRECONDITIONS_NOT_MET:
            return "preconditions not met", Tone.WAITING
        case OutcomeKind.FAILED:
            return "failed", Tone.BAD
        case OutcomeKind.BROKEN:
            return "broken", Tone.BAD
        case _:
            assert_never(ending)

"""Why each resource would get an event at a given time, or would not.

The explanation is one cycle of the pulse itself, with a frozen clock, a publisher that sends nothing, and an
observer that records the decisions. It shows decisions before pacing and before any rate limit: both depend on
what a process has already published, and this one has published nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.events import Event
from sentinel.core.fleet.aggregate import ConditionReason
from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import MalformedItem, Observation
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.ports.fleet import FetchError, FleetReader
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport
from sentinel.pulse.service import Pulse
from sentinel.runtime import durations
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING

_DEADLINE = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


class ExplainedResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, and the decision on it."""

    id: str
    kind: str
    generation: int
    observed_generation: int
    is_ready: bool = msgspec.field(name="ready")
    last_updated_time: datetime | None
    decision: PacingVerdict
    """`publish` or `skip`."""
    reason: Reason
    next_event_time: datetime | None
    """When the next event is due; the explained time if it is due already. None if the resource is paused."""
    warnings: tuple[str, ...]
    data: msgspec.Raw
    """The result of `message_data`, whether or not an event is due."""


class ReasonSummary(msgspec.Struct, frozen=True):
    """The resources whose next event has one reason.

    The rate shows which max age causes most events.
    """

    resources: int
    events_per_minute: float


class Summary(msgspec.Struct, frozen=True):
    """The totals of all explained resources.

    Malformed items could not be read and are not counted as fetched.
    """

    fetched: int
    publish: int
    skip: int
    events_per_minute: float
    """If no resource changes: one event for each per max age in force, rounded up to polls."""
    by_reason: Mapping[Reason, ReasonSummary]
    """By the reason of the next event, whether due or not; `paused` for resources that get none."""
    malformed: int
    """How many items could not be read."""


class Explanation(msgspec.Struct, frozen=True):
    """The output of `sentinel explain` for scripts."""

    at: datetime
    resource_type: str
    shard: str
    resources: Sequence[ExplainedResource]
    summary: Summary
    malformed: Sequence[MalformedItem]
    """The items that could not be read, in walk order. No event is published for them."""


class UnknownResource(LookupError):
    """No watched resource has this id; the message says which resources were searched."""


async def explain(
    definition: PulseDefinition,
    *,
    fleet: FleetReader,
    at: datetime,
    resource_id: str | None = None,
    progress: Callable[[int], None] = lambda fetched: None,
) -> Explanation:
    """Explain every resource that this pulse watches, or only the one with `resource_id`.

    With `resource_id`, the walk ends at that resource and the summary covers it alone. Raises `FetchError` if the
    fleet cannot be read to its end, and `UnknownResource`.
    """
    stopping = Stopping()
    composer = definition.composer
    recorder = _DecisionRecorder(
        composer=composer, resource_id=resource_id, on_found=stopping.request, progress=progress
    )
    pulse = Pulse(
        resource_type=definition.resource_type,
        poll_interval=definition.poll_interval,
        policy=definition.policy,
        pacer=Pacer(republish_interval=timedelta(0)),
        composer=composer,
        fleet=fleet,
        publisher=NullPublisher(),
        publish_deadline=_DEADLINE,
        clock=_FrozenClock(at),
        observer=recorder,
        tracer=NO_TRACING,
    )
    report = await pulse.cycle(stopping)
    if report.fetch_error:
        raise FetchError(report.fetch_error)
    recorded = recorder.recorded()
    if resource_id is not None and not recorded:
        unreadable = next((item for item in recorder.malformed if item.id == resource_id), None)
        if unreadable is not None:
            raise UnknownResource(f"{unreadable}; no event is published for it")
        raise UnknownResource(
            f"{resource_id}: no such resource among the {report.fetched:,} {definition.resource_type} that were"
            f" read (selector: {definition.shard}; {len(recorder.malformed):,} more could not be read)"
        )
    summary = _summary(recorded, definition.poll_interval, malformed=len(recorder.malformed))
    resources = [_with_kind_warning(each.resource, recorder, definition) for each in recorded]
    return Explanation(at, definition.resource_type, definition.shard, resources, summary, recorder.malformed)


class NullPublisher:
    """A publisher that confirms every event and sends nothing."""

    broker_type = "null"

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        return Receipt([PublishOutcome.CONFIRMED] * len(events), ())

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...


class _FrozenClock:
    """A clock that always shows the explained time."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


class _RecordedDecision(msgspec.Struct, frozen=True):
    resource: ExplainedResource
    max_age: timedelta


class _DecisionRecorder:
    """A `PulseObserver` that records decisions.

    Due resources are recorded from their events, so that none is listed whose event could not be composed.
    """

    needs_every_decision = True

    def __init__(
        self,
        *,
        composer: Composer,
        resource_id: str | None,
        on_found: Callable[[], None],
        progress: Callable[[int], None],
    ) -> None:
        self._composer = composer
        self._resource_id = resource_id
        self._on_found = on_found
        self._progress = progress
        self._fetched = 0
        self._recorded: dict[str, _RecordedDecision | None] = {}
        """By id, in walk order. None keeps the place of a resource whose event is still being composed."""
        self.malformed: list[MalformedItem] = []
        self.kinds_without_adapters: set[str] = set()
        """Kinds for which the API says that no adapter is required."""

    def recorded(self) -> list[_RecordedDecision]:
        return [each for each in self._recorded.values() if each is not None]

    def decided(self, page: PageReport) -> None:
        self.malformed.extend(page.malformed)
        for resource, paced in zip(page.resources, page.paced_decisions, strict=True):
            seen = paced.resource
            is_judged = seen.is_ready or seen.kind in self.kinds_without_adapters
            if not is_judged and _requires_no_adapter(resource.document):
                self.kinds_without_adapters.add(seen.kind)
            if not self._is_wanted(seen):
                continue
            if paced.verdict is PacingVerdict.PUBLISH:
                self._recorded[seen.id] = None
            elif paced.verdict is PacingVerdict.SKIP and seen.id not in self._recorded:
                try:
                    decoded = self._composer.decode(resource.document)
                    composed = self._composer.compose(decoded, paced.decision.reason)
                except Malformed as error:
                    self.malformed.append(MalformedItem(seen.id, str(error)))
                    continue
                self._record(paced, composed.data, composed.missing, composed.failed)
        self._fetched += len(page.paced_decisions)
        self._progress(self._fetched)

    def published(self, batch: PublishedBatch) -> None:
        for pending in batch.pending:
            if self._is_wanted(pending.paced.resource):
                self._record(pending.paced, pending.event.data, pending.missing, pending.failed)

    def finished(self, report: CycleReport) -> None: ...

    def streamed(self, report: StreamReport) -> None: ...

    def crashed(self, error: BaseException) -> None: ...

    def _is_wanted(self, seen: Observation) -> bool:
        return self._resource_id is None or seen.id == self._resource_id

    def _record(
        self,
        paced: PacedDecision,
        data: msgspec.Raw,
        missing: Sequence[str],
        failed: Sequence[tuple[str, str]],
    ) -> None:
        seen, decision = paced.resource, paced.decision
        warnings = [decision.warning] if decision.warning else []
        warnings += [f"message_data.{field}: the resource has no such field" for field in missing]
        warnings += [f"message_data.{field}: {problem}" for field, problem in failed]
        resource = ExplainedResource(
            id=seen.id,
            kind=seen.kind,
            generation=seen.generation,
            observed_generation=seen.observed_generation,
            is_ready=seen.is_ready,
            last_updated_time=seen.last_updated_time,
            decision=paced.verdict,
            reason=decision.reason,
            next_event_time=decision.next_event_time,
            warnings=tuple(warnings),
            data=data,
        )
        self._recorded[seen.id] = _RecordedDecision(resource, decision.max_age)
        if self._resource_id is not None:
            self._on_found()


class _ReasonedCondition(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _ReasonedStatus(msgspec.Struct):
    conditions: list[_ReasonedCondition] | None = None
    phase: str | None = None
    observed_generation: int | None = None


class _ReasonedResource(msgspec.Struct):
    status: _ReasonedStatus | None = None


_reasoned = msgspec.json.Decoder(_ReasonedResource)


def _requires_no_adapter(document: msgspec.Raw) -> bool:
    """Whether the API says that no adapter is required for a resource, so that it cannot become ready.

    Our API gives that as the reason of Ready. The public API writes an empty list of conditions.
    """
    try:
        status = _reasoned.decode(document).status
    except DECODE_ERRORS:
        return False
    if status is None or status.conditions is None:
        return False
    if not status.conditions:
        return status.phase is None and status.observed_generation is None
    return any(
        each.type in ("Ready", "Reconciled") and each.reason == ConditionReason.NO_REQUIRED_ADAPTERS
        for each in status.conditions
    )


def _with_kind_warning(
    resource: ExplainedResource, recorder: _DecisionRecorder, definition: PulseDefinition
) -> ExplainedResource:
    """Add the warning about the kind. Only some documents show it, because not all are requested in full."""
    if resource.is_ready or resource.kind not in recorder.kinds_without_adapters:
        return resource
    warning = (
        f"no adapter is required for {resource.kind or definition.resource_type}: it never becomes ready, and gets"
        f" an event every {durations.render(definition.policy.max_age_not_ready)} (max_age_not_ready)"
    )
    return msgspec.structs.replace(resource, warnings=(*resource.warnings, warning))


def _summary(recorded: Sequence[_RecordedDecision], poll_interval: timedelta, *, malformed: int) -> Summary:
    resources = Counter[Reason]()
    per_minute = dict.fromkeys(Reason, 0.0)
    by_max_age = Counter((_next_reason(each.resource), each.max_age) for each in recorded)
    for (reason, max_age), count in by_max_age.items():
        # Statuses are read at polls only: with polls every 5 s, a max age of 12 s acts as one of 15 s.
        interval = -(-max_age // poll_interval) * poll_interval
        resources[reason] += count
        if reason is not Reason.PAUSED:
            per_minute[reason] += count * (_MINUTE / interval)
    due = sum(each.resource.decision is PacingVerdict.PUBLISH for each in recorded)
    return Summary(
        fetched=len(recorded),
        publish=due,
        skip=len(recorded) - due,
        events_per_minute=sum(per_minute.values()),
        by_reason={
            reason: ReasonSummary(resources[reason], per_minute[reason]) for reason in Reason if resources[reason]
        },
        malformed=malformed,
    )


def _next_reason(resource: ExplainedResource) -> Reason:
    """The reason of the resource's next event, or why it gets none."""
    if resource.reason is not Reason.NOT_EXPIRED:
        return resource.reason
    return Reason.EXPIRED_READY if resource.is_ready else Reason.EXPIRED_NOT_READY

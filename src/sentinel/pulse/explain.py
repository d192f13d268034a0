"""Why each resource would get an event at some moment, or would not.

The answer is not worked out beside the pulse, it is the pulse's own: one cycle of it, with a clock that stands
still, a publisher that sends nothing, and an observer that takes down what was decided. What is explained is the
decision, before pacing and before any ceiling: those depend on what a process has sent so far, and this one has
sent nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import Malformed, Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from sentinel.ports.fleet import FetchError, FleetReader
from sentinel.ports.publisher import Outcome, Receipt
from sentinel.pulse.report import CycleReport, PacedDecision, PageReport, PublishedBatch
from sentinel.pulse.service import Pulse
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING

_DEADLINE = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


class Row(msgspec.Struct, frozen=True, kw_only=True):
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
    """The moment explained where it is due, else when it will be; None for one that is paused."""
    warnings: tuple[str, ...]
    data: msgspec.Raw
    """What `message_data` gives for it, due or not."""


class Expectation(msgspec.Struct, frozen=True):
    """What comes of the resources that get their events for one reason."""

    resources: int
    events_per_minute: float


class Summary(msgspec.Struct, frozen=True):
    """Every resource that is explained, taken together."""

    fetched: int
    publish: int
    skip: int
    events_per_minute: float
    """If every resource stays as it is: one event for each per max age in force, at the polls."""
    by_reason: Mapping[Reason, Expectation]
    """The same by the reason of the next event, which for one that is not due lies ahead; by `paused` for those
    that get none."""
    malformed: int
    """Items that could not be read, and are not among those fetched."""


class Explanation(msgspec.Struct, frozen=True):
    """The answer, as it is printed for scripts."""

    at: datetime
    resource_type: str
    shard: str
    resources: Sequence[Row]
    summary: Summary


class Findings(msgspec.Struct, frozen=True):
    """An explanation, and what got in its way."""

    explanation: Explanation
    malformed: Sequence[str]
    """One text for each item that could not be read."""


class UnknownResource(LookupError):
    """Nothing with this id is watched; the text says where it was looked for."""


async def explain(
    settings: PulseSettings,
    *,
    fleet: FleetReader,
    at: datetime,
    only: str | None = None,
    progress: Callable[[int], None] = lambda fetched: None,
) -> Findings:
    """Explains every resource that these settings watch, or the one with the id `only`.

    One resource is explained alone, summary included, and the walk ends where it is found. Raises `FetchError`
    where the fleet could not be read to its end, and `UnknownResource`.
    """
    stopping = Stopping()
    composer = Composer(settings.message_data)
    notes = _Notes(composer=composer, only=only, on_found=stopping.request, progress=progress)
    pulse = Pulse(
        resource_type=settings.resource_type,
        poll_interval=settings.poll_interval,
        policy=settings.policy,
        pacer=Pacer(republish_interval=timedelta(0)),
        composer=composer,
        fleet=fleet,
        publisher=NullPublisher(),
        publish_deadline=_DEADLINE,
        clock=_StandingClock(at),
        observer=notes,
        tracer=NO_TRACING,
    )
    report = await pulse.cycle(stopping)
    if report.fetch_error:
        raise FetchError(report.fetch_error)
    taken = notes.taken()
    if only is not None and not taken:
        raise UnknownResource(
            f"{only}: no such resource among the {report.fetched:,} {settings.resource_type} that were read"
            f" (selector: {settings.shard}; {len(notes.malformed):,} more could not be read)"
        )
    summary = _summary(taken, settings.poll_interval, malformed=len(notes.malformed))
    rows = [note.row for note in taken]
    return Findings(Explanation(at, settings.resource_type, settings.shard, rows, summary), notes.malformed)


class NullPublisher:
    """A publisher for looking at a cycle: it takes every event, says that all is well, and sends nothing."""

    broker_type = "nowhere"

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        return Receipt([Outcome.CONFIRMED] * len(events), ())

    def trouble(self) -> str | None:
        return None

    async def close(self) -> None: ...


class _StandingClock:
    """The moment that is explained, however long the walk takes."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


class _Note(msgspec.Struct, frozen=True):
    row: Row
    max_age: timedelta


class _Notes:
    """The observer. What is due is taken down from its event, so that none is listed that would not be sent."""

    def __init__(
        self,
        *,
        composer: Composer,
        only: str | None,
        on_found: Callable[[], None],
        progress: Callable[[int], None],
    ) -> None:
        self._composer = composer
        self._only = only
        self._on_found = on_found
        self._progress = progress
        self._fetched = 0
        self._notes: dict[str, _Note | None] = {}
        """By id, in the order of the walk; None holds the place of one whose event is still being composed."""
        self.malformed: list[str] = []

    def taken(self) -> list[_Note]:
        return [note for note in self._notes.values() if note is not None]

    def judged(self, page: PageReport) -> None:
        self.malformed.extend(page.malformed)
        for resource, judgement in zip(page.resources, page.judgements, strict=True):
            seen = judgement.resource
            if not self._is_wanted(seen):
                continue
            if judgement.verdict is PacingVerdict.PUBLISH:
                self._notes[seen.id] = None
            elif judgement.verdict is PacingVerdict.SKIP and seen.id not in self._notes:
                try:
                    composed = self._composer.compose(resource.decode(), judgement.decision.reason)
                except Malformed as error:
                    self.malformed.append(f"{seen.id}: {error}")
                    continue
                self._take(judgement, composed.data, composed.missing, composed.failed)
        self._fetched += len(page.judgements)
        self._progress(self._fetched)

    def published(self, batch: PublishedBatch) -> None:
        for pending in batch.pending:
            if self._is_wanted(pending.judgement.resource):
                self._take(pending.judgement, pending.event.data, pending.missing, pending.failed)

    def finished(self, report: CycleReport) -> None: ...

    def crashed(self, error: BaseException) -> None: ...

    def _is_wanted(self, seen: Observation) -> bool:
        return self._only is None or seen.id == self._only

    def _take(
        self,
        judgement: PacedDecision,
        data: msgspec.Raw,
        missing: Sequence[str],
        failed: Sequence[tuple[str, str]],
    ) -> None:
        seen, decision = judgement.resource, judgement.decision
        warnings = [decision.warning] if decision.warning else []
        warnings += [f"message_data.{field}: the resource has no such field" for field in missing]
        warnings += [f"message_data.{field}: {problem}" for field, problem in failed]
        row = Row(
            id=seen.id,
            kind=seen.kind,
            generation=seen.generation,
            observed_generation=seen.observed_generation,
            is_ready=seen.is_ready,
            last_updated_time=seen.last_updated_time,
            decision=judgement.verdict,
            reason=decision.reason,
            next_event_time=decision.next_event_time,
            warnings=tuple(warnings),
            data=data,
        )
        self._notes[seen.id] = _Note(row, decision.max_age)
        if self._only is not None:
            self._on_found()


def _summary(notes: Sequence[_Note], poll_interval: timedelta, *, malformed: int) -> Summary:
    resources = Counter[Reason]()
    per_minute = dict.fromkeys(Reason, 0.0)
    for (reason, max_age), count in Counter((_ahead(note.row), note.max_age) for note in notes).items():
        # A status is only looked at when polled: a max age of 12 s at polls of 5 s is one of 15 s.
        apart = -(-max_age // poll_interval) * poll_interval
        resources[reason] += count
        if reason is not Reason.PAUSED:
            per_minute[reason] += count * (_MINUTE / apart)
    due = sum(note.row.decision is PacingVerdict.PUBLISH for note in notes)
    return Summary(
        fetched=len(notes),
        publish=due,
        skip=len(notes) - due,
        events_per_minute=sum(per_minute.values()),
        by_reason={
            reason: Expectation(resources[reason], per_minute[reason]) for reason in Reason if resources[reason]
        },
        malformed=malformed,
    )


def _ahead(row: Row) -> Reason:
    """The reason of its next event, or why there is none."""
    if row.reason is not Reason.NOT_EXPIRED:
        return row.reason
    return Reason.EXPIRED_READY if row.is_ready else Reason.EXPIRED_NOT_READY

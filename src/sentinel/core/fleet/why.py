"""Why a resource is not ready, or not deleted yet, in plain sentences.

The answer combines three things: the conditions of the resource, the reports of its adapters, and the policy of
the pulse, which tells when the resource is checked again. Nothing is parsed from messages. The required and the
blocking adapters are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.adapter.task import PreconditionsNotMet
from sentinel.core.counted import counted
from sentinel.core.fleet.aggregate import ConditionReason, condition_type
from sentinel.core.fleet.documents import (
    AVAILABLE,
    FINALIZED,
    READY,
    AdapterStatus,
    Phase,
    ResourceDocument,
    ResourceStatus,
    WorkInProgress,
    encode_document,
)
from sentinel.core.pulse import decision
from sentinel.core.pulse.decision import Decision, Policy
from sentinel.core.pulse.observation import observe

NOT_REPORTED = "NotReported"
OUTDATED_REPORT = "OutdatedReport"
NOT_FINALIZED = "NotFinalized"
_OWN_REASONS = (NOT_REPORTED, OUTDATED_REPORT, NOT_FINALIZED)
_EXPRESSION_REASONS = (ConditionReason.EXPRESSION_FALSE, ConditionReason.EXPRESSION_FAILED)
_WAITS_FOR_ANOTHER = PreconditionsNotMet().reason
"""The default reason of an adapter that waits for another."""


class Wait(msgspec.Struct, frozen=True):
    """An adapter that the resource waits for, and what it last reported: a result or work in progress."""

    adapter: str
    reason: str
    """The reason that the adapter reported, or one of the constants above if it has not reported."""
    message: str
    since: datetime


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a resource, and what it waits for."""

    document: ResourceDocument
    waiting_for: tuple[Wait, ...]
    children: int
    """The number of children that a deletion waits for; 0 if the resource is not being deleted."""
    requires_adapters: bool
    decision: Decision

    @property
    def is_ready(self) -> bool:
        return self.document.status.phase is Phase.READY

    @property
    def is_paused(self) -> bool:
        return self.document.paused is True

    @property
    def next_pulse(self) -> datetime | None:
        """When the next event is due, which may be now; None while the resource is paused."""
        return self.decision.next_event_time


def explain(
    document: ResourceDocument,
    *,
    statuses: Sequence[AdapterStatus],
    waiting: Mapping[str, datetime],
    required: Sequence[str],
    children: int,
    policy: Policy,
    now: datetime,
) -> Why:
    """Explain the state of a resource. `waiting` maps its blocking adapters to the time since when."""
    reported = {status.adapter: status for status in statuses}
    waits = [
        Wait(adapter, *_last_report(reported.get(adapter), document), since) for adapter, since in waiting.items()
    ]
    return Why(
        document=document,
        # Adapters that only wait for another come last: they are not the cause.
        waiting_for=tuple(sorted(waits, key=lambda wait: wait.reason == _WAITS_FOR_ANOTHER)),
        children=children if document.is_deleting else 0,
        requires_adapters=bool(required),
        decision=decision.decide(observe(encode_document(document)), policy, now),
    )


def blocking_adapters(status: ResourceStatus, *, generation: int, required: Sequence[str]) -> list[str]:
    """Return the required adapters that keep a resource from being ready, from its document alone.

    Not for a resource that is being deleted: its conditions do not show which adapters have finalized it.
    """
    return [adapter for adapter in required if not _is_done(status, adapter, generation)]


def is_up_to_expression(status: ResourceStatus) -> bool:
    """Whether `Ready` is False because an expression of the kind says so, or fails."""
    ready = status.condition(READY)
    return ready is not None and ready.reason in _EXPRESSION_REASONS


def sentences(why: Why, *, now: datetime, duration: Callable[[timedelta], str]) -> Iterator[str]:
    """Yield the explanation, one sentence per line. `duration` renders a time span."""

    def since(time: datetime) -> str:
        # Clocks differ, so the time may be slightly ahead of ours.
        return duration(max(now - time, timedelta(0)))

    document = why.document
    yield f"{document.kind} {document.name}: {_state(why, since)}"
    for wait in why.waiting_for:
        to_finalize = " to finalize" if document.is_deleting else ""
        # Reasons that we set ourselves are for scripts. For people their messages are enough.
        reason = "" if wait.reason in _OWN_REASONS else wait.reason
        cause = " – ".join(part for part in (reason, wait.message) if part)
        yield f"waiting for {wait.adapter}{to_finalize} for {since(wait.since)}" + (f": {cause}" if cause else "")
    if why.children:
        yield f"waiting for {counted(why.children, 'child', 'children')} to be deleted"
    yield _outlook(why, now, duration)


def _state(why: Why, since: Callable[[datetime], str]) -> str:
    document = why.document
    if isinstance(document.deleted_time, datetime):
        return f"being deleted for {since(document.deleted_time)}"
    ready = document.status.condition(READY)
    span = since(document.status.last_transition_time if ready is None else ready.last_transition_time)
    if why.is_ready:
        return f"ready for {span}, at generation {document.generation}"
    if not why.requires_adapters:
        return f"not ready for {span}: no adapter is required, so none can report it ready"
    if ready is not None and is_up_to_expression(document.status):
        return f"not ready for {span}: {ready.message}"
    return f"not ready for {span}"


def _outlook(why: Why, now: datetime, duration: Callable[[timedelta], str]) -> str:
    if why.is_paused:
        return "paused: no events are sent for it until it is resumed"
    decided = why.decision
    what = "next check" if why.is_ready else "next pulse"
    max_age = duration(decided.max_age)
    if decided.is_due or why.next_pulse is None:
        return f"{what} due now, and every {max_age} until it is answered: {decided.reason}"
    # Rounded up, so that half a second does not become 0s.
    second = timedelta(seconds=1)
    return f"{what} in {duration(-(-(why.next_pulse - now) // second) * second)} (max age {max_age})"


def _is_done(status: ResourceStatus, adapter: str, generation: int) -> bool:
    mirrored = status.condition(condition_type(adapter))
    return mirrored is not None and mirrored.is_true and mirrored.observed_generation == generation


def _last_report(status: AdapterStatus | None, document: ResourceDocument) -> tuple[str, str]:
    if status is None:
        return NOT_REPORTED, "it has not reported yet"
    generation, _ = status.newest
    if generation != document.generation:
        return (
            OUTDATED_REPORT,
            f"it has reported on generation {generation}, and not yet on {document.generation}",
        )
    if isinstance(status.in_progress, WorkInProgress):
        return status.in_progress.reason, status.in_progress.message
    condition = status.condition(FINALIZED if document.is_deleting else AVAILABLE)
    if condition is None:
        return NOT_FINALIZED, "it has not reported that it has cleaned up"
    return condition.reason, condition.message

"""Why a resource is not ready, or not gone, in words that a person would use.

Its conditions say that something is missing, each adapter's report says what that adapter saw, the pulse's policy
says when somebody looks again. Whoever asks "why" wants to hear the three together. Nothing is read out of
messages: which adapters are required and which are in the way is known, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.adapter.task import PreconditionsNotMet
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import (
    AVAILABLE,
    FINALIZED,
    READY,
    AdapterStatus,
    Phase,
    ResourceDocument,
    ResourceStatus,
    encode_document,
)
from sentinel.core.pulse import decision
from sentinel.core.pulse.decision import Decision, Policy
from sentinel.core.pulse.observation import observe

NOT_REPORTED = "NotReported"
OUTDATED_REPORT = "OutdatedReport"
NOT_FINALIZED = "NotFinalized"
_OURS = (NOT_REPORTED, OUTDATED_REPORT, NOT_FINALIZED)
_WAITS_ITSELF = PreconditionsNotMet().reason
"""What an adapter says that has found another's work missing, unless it has words of its own."""


class Wait(msgspec.Struct, frozen=True):
    """An adapter that is waited for, and what it said last."""

    adapter: str
    reason: str
    """The adapter's own, or one of ours where it has said nothing to the point."""
    message: str
    since: datetime


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """How a resource stands, and what would change that."""

    document: ResourceDocument
    waiting_for: tuple[Wait, ...]
    children: int
    """How many resources a deletion still waits for; 0 where nothing is being deleted."""
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
        """When the next event is due, which may be now; None while it is paused."""
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
    """Says how a resource stands; `waiting` are the adapters in the way, each with the moment since when."""
    reported = {status.adapter: status for status in statuses}
    waits = [Wait(adapter, *_said(reported.get(adapter), document), since) for adapter, since in waiting.items()]
    return Why(
        document=document,
        # The cause first: whoever only waits for another says nothing new.
        waiting_for=tuple(sorted(waits, key=lambda wait: wait.reason == _WAITS_ITSELF)),
        children=children if document.is_deleting else 0,
        requires_adapters=bool(required),
        decision=decision.decide(observe(encode_document(document)), policy, now),
    )


def blocking_adapters(status: ResourceStatus, *, generation: int, required: Sequence[str]) -> list[str]:
    """The required adapters that keep a resource from being ready, told from its document alone.

    Only for one that lives: whether an adapter has cleaned up is not among a resource's conditions.
    """
    return [adapter for adapter in required if not _is_done(status, adapter, generation)]


def sentences(why: Why, *, now: datetime, duration: Callable[[timedelta], str]) -> Iterator[str]:
    """Sentences, one a line; `duration` renders a time span as the caller's readers are used to."""

    def since(moment: datetime) -> str:
        # Clocks differ: what is a moment ahead by ours has only just happened.
        return duration(max(now - moment, timedelta(0)))

    document = why.document
    yield f"{document.kind} {document.name}: {_standing(why, since)}"
    for wait in why.waiting_for:
        to_finalise = " to finalise" if document.is_deleting else ""
        # Where the words are ours, the reason is only their name for scripts.
        reason = "" if wait.reason in _OURS else wait.reason
        said = " – ".join(part for part in (reason, wait.message) if part)
        yield f"waiting for {wait.adapter}{to_finalise} for {since(wait.since)}" + (f": {said}" if said else "")
    if why.children:
        yield f"waiting for {why.children} {'child' if why.children == 1 else 'children'} to go"
    yield _outlook(why, now, duration)


def _standing(why: Why, since: Callable[[datetime], str]) -> str:
    document = why.document
    if isinstance(document.deleted_time, datetime):
        return f"being deleted for {since(document.deleted_time)}"
    ready = document.status.condition(READY)
    span = since(document.status.last_transition_time if ready is None else ready.last_transition_time)
    if why.is_ready:
        return f"ready for {span}, at generation {document.generation}"
    if not why.requires_adapters:
        return f"not ready for {span}: no adapter is required, so none can say that it is ready"
    return f"not ready for {span}"


def _outlook(why: Why, now: datetime, duration: Callable[[timedelta], str]) -> str:
    if why.is_paused:
        return "paused: no events are sent for it until it is resumed"
    found = why.decision
    what = "next check" if why.is_ready else "next pulse"
    max_age = duration(found.max_age)
    if found.is_due or why.next_pulse is None:
        return f"{what} due now, and every {max_age} until it is answered: {found.reason}"
    # Rounded up: what is due in half a second is not due in 0.
    second = timedelta(seconds=1)
    return f"{what} in {duration(-(-(why.next_pulse - now) // second) * second)} (max age {max_age})"


def _is_done(status: ResourceStatus, adapter: str, generation: int) -> bool:
    mirrored = status.condition(condition_type(adapter))
    return mirrored is not None and mirrored.is_true and mirrored.observed_generation == generation


def _said(status: AdapterStatus | None, document: ResourceDocument) -> tuple[str, str]:
    if status is None:
        return NOT_REPORTED, "it has not reported yet"
    if status.observed_generation != document.generation:
        return (
            OUTDATED_REPORT,
            f"it has reported on generation {status.observed_generation}, and not yet on {document.generation}",
        )
    condition = status.condition(FINALIZED if document.is_deleting else AVAILABLE)
    if condition is None:
        return NOT_FINALIZED, "it has not reported that it has cleaned up"
    return condition.reason, condition.message

"""From what an adapter's task came to, to the report that says so.

Every evaluation ends in exactly one of the outcomes here, and every outcome is a report: there is no way to look
at a resource and say nothing. `Applied` says that the work was begun, `Available` that it is done, `Health` that
the adapter itself is well; a task that waits or fails is still a healthy adapter, one that raised is not.

A task is somebody else's code and may return anything. What it returns is judged here, and whatever the API would
refuse - a result that is no outcome, data that is no JSON, a text that no database takes - becomes a report that
says so, instead of no report at all.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.adapter.resource import INTERRUPTED
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    FINALIZED,
    HEALTH,
    ConditionStatus,
    Report,
    ReportedCondition,
)
from sentinel.core.fleet.reports import MAX_DATA_BYTES, MAX_MESSAGE_LENGTH, MAX_REASON_LENGTH


class Done(msgspec.Struct, frozen=True):
    """The work is complete."""

    message: str = ""
    reason: str = "Completed"
    data: Any = UNSET
    """JSON for whoever reads the status: addresses, identifiers, counts."""


class InProgress(msgspec.Struct, frozen=True):
    """The work has begun and goes on elsewhere; the next pulse asks again."""

    message: str = ""
    reason: str = "InProgress"
    data: Any = UNSET


class PreconditionsNotMet(msgspec.Struct, frozen=True):
    """Nothing was done, because something else must come first."""

    message: str = ""
    reason: str = "PreconditionsNotMet"
    data: Any = UNSET


class Failed(msgspec.Struct, frozen=True):
    """The work was tried and did not succeed; the next pulse tries again."""

    message: str = ""
    reason: str = "Failed"
    data: Any = UNSET


class Finalized(msgspec.Struct, frozen=True):
    """Whatever the adapter had made for a resource that is being deleted is gone."""

    message: str = ""
    reason: str = "Finalized"
    data: Any = UNSET


class Broken(msgspec.Struct, frozen=True):
    """The adapter itself failed: an exception, a timeout, a result that is none. Made by the runtime alone."""

    message: str
    reason: str = "AdapterError"


Outcome: TypeAlias = Done | InProgress | PreconditionsNotMet | Failed | Finalized
"""What a task may return."""

_OUTCOMES = (Done, InProgress, PreconditionsNotMet, Failed, Finalized)
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
_WELL = ("NoErrors", "Adapter is healthy")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class OutcomeKind(StrEnum):
    """How an evaluation ended, as metrics and logs name it."""

    DONE = "done"
    IN_PROGRESS = "in_progress"
    PRECONDITIONS_NOT_MET = "preconditions_not_met"
    FAILED = "failed"
    FINALIZED = "finalized"
    BROKEN = "broken"


class CheckedOutcome(msgspec.Struct, frozen=True):
    """What an evaluation came to, fit to be reported."""

    outcome: Outcome | Broken
    data: msgspec.Raw | UnsetType = UNSET
    """The outcome's, encoded."""

    @property
    def kind(self) -> OutcomeKind:
        match self.outcome:
            case Done():
                return OutcomeKind.DONE
            case InProgress():
                return OutcomeKind.IN_PROGRESS
            case PreconditionsNotMet():
                return OutcomeKind.PRECONDITIONS_NOT_MET
            case Failed():
                return OutcomeKind.FAILED
            case Finalized():
                return OutcomeKind.FINALIZED
            case Broken():
                return OutcomeKind.BROKEN
            case _:
                assert_never(self.outcome)


def check_outcome(result: object, *, is_deleting: bool) -> CheckedOutcome:
    """Judges what a task, or for a resource that is being deleted a finalizer, has returned."""
    if isinstance(result, Broken):
        return CheckedOutcome(result)
    if not isinstance(result, _OUTCOMES):
        return _invalid(f"expected an outcome such as Done(), got {type(result).__name__}")
    for field, text in (("message", result.message), ("reason", result.reason)):
        if not isinstance(text, str):  # the constructors of structs take anything
            return _invalid(f"{field}: expected text, got {type(text).__name__}")
    # Texts of a class of its own would answer in its own ways later on.
    result = msgspec.structs.replace(
        result, message=str.__str__(result.message), reason=str.__str__(result.reason)
    )
    name = type(result).__name__
    if isinstance(result, Finalized) and not is_deleting:
        return _invalid("expected Finalized for a resource that is being deleted alone")
    if isinstance(result, Done) and is_deleting:
        return _invalid("expected Finalized() from a finalizer that has nothing left to do, got Done")
    if result.data is UNSET:
        return CheckedOutcome(result)
    try:
        data = msgspec.json.encode(result.data)
    except Exception as error:  # it is somebody else's object, and may fail in any way
        return _invalid(f"the data of {name} cannot be written as JSON ({type(error).__name__}: {error})")
    if len(data) > MAX_DATA_BYTES:
        return _invalid(f"the data of {name}: expected at most {MAX_DATA_BYTES} bytes of JSON, got {len(data)}")
    return CheckedOutcome(result, msgspec.Raw(data))


def interrupted() -> CheckedOutcome:
    """What is said of work that is cut off because the adapter ends: nothing is known but that it had begun."""
    return CheckedOutcome(
        InProgress("The adapter ended before the work did, which will be taken up again", INTERRUPTED)
    )


def truncated(conclusion: CheckedOutcome) -> CheckedOutcome:
    """With texts of the length that a report may have; whoever takes secrets out of them does that before."""
    outcome = conclusion.outcome
    told = msgspec.structs.replace(
        outcome, message=_cut(outcome.message, MAX_MESSAGE_LENGTH), reason=_cut(outcome.reason, MAX_REASON_LENGTH)
    )
    return msgspec.structs.replace(conclusion, outcome=told)


def report(
    conclusion: CheckedOutcome, *, adapter: str, generation: int, is_deleting: bool, at: datetime
) -> Report:
    """The report on an evaluation of the resource at `generation`, whose texts are `truncated`.

    While a resource is being deleted every report says whether the adapter has finalised it.
    """
    outcome = conclusion.outcome
    applied, available, health = _statuses(outcome)
    reason, message = outcome.reason, outcome.message
    is_broken = isinstance(outcome, Broken)
    conditions = [
        ReportedCondition(APPLIED, applied, reason, message),
        ReportedCondition(AVAILABLE, available, reason, message),
        ReportedCondition(HEALTH, health, *((reason, message) if is_broken else _WELL)),
    ]
    if is_deleting:
        finalized = _TRUE if isinstance(outcome, Finalized) else _FALSE
        conditions.append(ReportedCondition(FINALIZED, finalized, reason, message))
    return Report(adapter, generation, at, tuple(conditions), conclusion.data)


def _invalid(message: str) -> CheckedOutcome:
    return CheckedOutcome(Broken(message, reason="InvalidResult"))


def _statuses(outcome: Outcome | Broken) -> tuple[ConditionStatus, ConditionStatus, ConditionStatus]:
    match outcome:
        case Done():
            return _TRUE, _TRUE, _TRUE
        case InProgress():
            return _TRUE, _UNKNOWN, _TRUE
        case PreconditionsNotMet() | Finalized():
            return _FALSE, _FALSE, _TRUE
        case Failed():
            return _TRUE, _FALSE, _TRUE
        case Broken():
            return _FALSE, _FALSE, _FALSE
        case _:
            assert_never(outcome)


def _cut(text: str, longest: int) -> str:
    """The text as the API takes it, so that no report is refused for being talkative or badly encoded."""
    text = text.encode("utf-8", "replace").decode().replace("\0", _REPLACEMENT)
    return text if len(text) <= longest else text[: longest - 1] + "…"

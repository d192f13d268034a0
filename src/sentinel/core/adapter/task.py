"""The outcome of an adapter's task, and the report made from it.

Every evaluation ends with exactly one outcome, and every outcome becomes a report. `Applied` means that the work
was begun, `Available` that it is done, `Health` that the adapter itself works. An adapter whose task waits or
fails is healthy. One whose task raised is not.

A task is user code and may return anything. A result that the API would reject (not an outcome, data that is not
JSON, a text that no database stores) becomes a report of that error instead of no report.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class _Outcome(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    data: Any = UNSET
    """JSON for readers of the status: addresses, identifiers, counts."""


class Done(_Outcome, frozen=True):
    """The work is complete."""

    reason: str = "Completed"


class InProgress(_Outcome, frozen=True):
    """The work has begun and continues elsewhere. The next pulse runs the task again."""

    reason: str = "InProgress"


class PreconditionsNotMet(_Outcome, frozen=True):
    """Nothing was done, because something else must come first."""

    reason: str = "PreconditionsNotMet"


class Failed(_Outcome, frozen=True):
    """The work failed. The next pulse runs the task again."""

    reason: str = "Failed"


class Finalized(_Outcome, frozen=True):
    """Everything that the adapter had created for a deleted resource is gone."""

    reason: str = "Finalized"


class Broken(msgspec.Struct, frozen=True):
    """The adapter itself failed: an exception, a timeout, an invalid result. Only the runtime creates it."""

    message: str
    reason: str = "AdapterError"


Outcome: TypeAlias = Done | InProgress | PreconditionsNotMet | Failed | Finalized
"""The values that a task may return."""


class OutcomeKind(StrEnum):
    """The kind of an outcome, as metrics and logs name it."""

    DONE = "done"
    IN_PROGRESS = "in_progress"
    PRECONDITIONS_NOT_MET = "preconditions_not_met"
    FAILED = "failed"
    FINALIZED = "finalized"
    BROKEN = "broken"


_KINDS: Mapping[type[Outcome | Broken], OutcomeKind] = {
    Done: OutcomeKind.DONE,
    InProgress: OutcomeKind.IN_PROGRESS,
    PreconditionsNotMet: OutcomeKind.PRECONDITIONS_NOT_MET,
    Failed: OutcomeKind.FAILED,
    Finalized: OutcomeKind.FINALIZED,
    Broken: OutcomeKind.BROKEN,
}
_OUTCOMES = (Done, InProgress, PreconditionsNotMet, Failed, Finalized)
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
_HEALTHY = ("NoErrors", "Adapter is healthy")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class CheckedOutcome(msgspec.Struct, frozen=True):
    """An outcome that can be reported."""

    outcome: Outcome | Broken
    data: msgspec.Raw | UnsetType = UNSET
    """The data of the outcome, encoded."""

    @property
    def kind(self) -> OutcomeKind:
        return next(kind for outcome, kind in _KINDS.items() if isinstance(self.outcome, outcome))


def check_outcome(result: object, *, is_deleting: bool) -> CheckedOutcome:
    """Check the result of a task, or of a finalizer if the resource is being deleted."""
    if isinstance(result, Broken):
        return CheckedOutcome(result)
    if not isinstance(result, _OUTCOMES):
        return _invalid(f"expected an outcome such as Done(), got {type(result).__name__}")
    for field, text in (("message", result.message), ("reason", result.reason)):
        if not isinstance(text, str):  # constructors of structs do not check types
            return _invalid(f"{field}: expected text, got {type(text).__name__}")
    # A subclass of str may override any method, so convert to plain str.
    result = msgspec.structs.replace(
        result, message=str.__str__(result.message), reason=str.__str__(result.reason)
    )
    name = type(result).__name__
    if isinstance(result, Finalized) and not is_deleting:
        return _invalid("expected Finalized only for a resource that is being deleted")
    if isinstance(result, Done) and is_deleting:
        return _invalid("expected Finalized() from a finalizer that has nothing left to do, got Done")
    if result.data is UNSET:
        return CheckedOutcome(result)
    try:
        data = msgspec.json.encode(result.data)
    except Exception as error:  # user objects may raise anything
        return _invalid(f"the data of {name} cannot be encoded as JSON ({type(error).__name__}: {error})")
    if len(data) > MAX_DATA_BYTES:
        return _invalid(f"the data of {name}: expected at most {MAX_DATA_BYTES} bytes of JSON, got {len(data)}")
    return CheckedOutcome(result, msgspec.Raw(data))


def interrupted() -> CheckedOutcome:
    """Return the outcome of work that was cut off by a shutdown: it was begun, and its result is unknown."""
    return CheckedOutcome(
        InProgress("The adapter stopped before the work was done; it will be resumed", INTERRUPTED)
    )


def truncated(checked: CheckedOutcome) -> CheckedOutcome:
    """Return the outcome with its texts cut to the limits of a report. Redact secrets first."""
    outcome = checked.outcome
    cut = msgspec.structs.replace(
        outcome, message=_cut(outcome.message, MAX_MESSAGE_LENGTH), reason=_cut(outcome.reason, MAX_REASON_LENGTH)
    )
    return msgspec.structs.replace(checked, outcome=cut)


def report(checked: CheckedOutcome, *, adapter: str, generation: int, is_deleting: bool, at: datetime) -> Report:
    """Return the report on an evaluation of the resource at `generation`. Its texts must be `truncated`.

    While a resource is being deleted, every report has the condition `Finalized`.
    """
    outcome = checked.outcome
    applied, available, health = _statuses(outcome)
    reason, message = outcome.reason, outcome.message
    is_broken = isinstance(outcome, Broken)
    conditions = [
        ReportedCondition(APPLIED, applied, reason, message),
        ReportedCondition(AVAILABLE, available, reason, message),
        ReportedCondition(HEALTH, health, *((reason, message) if is_broken else _HEALTHY)),
    ]
    if is_deleting:
        finalized = _TRUE if isinstance(outcome, Finalized) else _FALSE
        conditions.append(ReportedCondition(FINALIZED, finalized, reason, message))
    return Report(adapter, generation, at, tuple(conditions), checked.data)


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


def _cut(text: str, max_length: int) -> str:
    """Return the text as the API accepts it: valid UTF-8 without NUL, and not too long."""
    text = text.encode("utf-8", "replace").decode().replace("\0", _REPLACEMENT)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"

"""The outcome of a task, and the report made from it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sentinel.core.adapter import task
from sentinel.core.adapter.task import (
    Broken,
    CheckedOutcome,
    Done,
    Failed,
    Finalized,
    InProgress,
    Outcome,
    OutcomeKind,
    PreconditionsNotMet,
)
from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import MANDATORY, ConditionStatus, Report

NOW = datetime(2025, 10, 17, 10, 0, tzinfo=UTC)
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def report_of(outcome: Outcome | Broken, *, is_deleting: bool = False) -> Report:
    return task.report(CheckedOutcome(outcome), adapter="dns", generation=3, is_deleting=is_deleting, at=NOW)


def statuses(report: Report) -> list[tuple[str, ConditionStatus]]:
    return [(each.type, each.status) for each in report.conditions]


@pytest.mark.parametrize(
    ("outcome", "applied", "available", "health"),
    [
        (Done(), TRUE, TRUE, TRUE),
        (InProgress(), TRUE, UNKNOWN, TRUE),
        (PreconditionsNotMet(), FALSE, FALSE, TRUE),
        (Failed(), TRUE, FALSE, TRUE),
        (Broken("ValueError: no"), FALSE, FALSE, FALSE),
    ],
)
def test_each_outcome_has_its_three_conditions(
    outcome: Outcome | Broken,
    applied: ConditionStatus,
    available: ConditionStatus,
    health: ConditionStatus,
) -> None:
    report = report_of(outcome)

    assert statuses(report) == [("Applied", applied), ("Available", available), ("Health", health)]
    assert (report.adapter, report.observed_generation, report.observed_time) == ("dns", 3, NOW)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Finalized(), [("Applied", FALSE), ("Available", FALSE), ("Health", TRUE), ("Finalized", TRUE)]),
        (InProgress(), [("Applied", TRUE), ("Available", UNKNOWN), ("Health", TRUE), ("Finalized", FALSE)]),
        (Failed(), [("Applied", TRUE), ("Available", FALSE), ("Health", TRUE), ("Finalized", FALSE)]),
        (Broken("x"), [("Applied", FALSE), ("Available", FALSE), ("Health", FALSE), ("Finalized", FALSE)]),
    ],
)
def test_reports_on_a_deleted_resource_have_finalized(
    outcome: Outcome | Broken, expected: list[tuple[str, ConditionStatus]]
) -> None:
    assert statuses(report_of(outcome, is_deleting=True)) == expected


def test_conditions_have_the_reason_and_message_of_the_outcome() -> None:
    report = report_of(PreconditionsNotMet("Waiting for validation to complete"))

    applied, available, health = report.conditions
    assert (applied.reason, applied.message) == ("PreconditionsNotMet", "Waiting for validation to complete")
    assert (available.reason, available.message) == (applied.reason, applied.message)
    assert (health.reason, health.message) == ("NoErrors", "Adapter is healthy")


def test_a_broken_adapter_reports_its_error_as_health() -> None:
    health = report_of(Broken("ValueError: no such zone")).conditions[2]

    assert (health.reason, health.message) == ("AdapterError", "ValueError: no such zone")


class Uploaded(Done, frozen=True):
    """An outcome as a task may define it."""


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Done(), OutcomeKind.DONE),
        (Uploaded(), OutcomeKind.DONE),
        (InProgress(), OutcomeKind.IN_PROGRESS),
        (PreconditionsNotMet(), OutcomeKind.PRECONDITIONS_NOT_MET),
        (Failed(), OutcomeKind.FAILED),
        (Finalized(), OutcomeKind.FINALIZED),
        (Broken("x"), OutcomeKind.BROKEN),
    ],
)
def test_each_outcome_has_a_name_for_metrics(outcome: Outcome | Broken, kind: OutcomeKind) -> None:
    assert CheckedOutcome(outcome).kind is kind


def test_the_report_has_the_encoded_data() -> None:
    checked = task.check_outcome(Done(data={"zone": "z1", "records": [1, 2]}), is_deleting=False)

    report = task.report(checked, adapter="dns", generation=1, is_deleting=False, at=NOW)

    assert report.data == msgspec.Raw(b'{"zone":"z1","records":[1,2]}')


def test_without_data_the_report_has_none() -> None:
    assert task.check_outcome(Done(), is_deleting=False) == CheckedOutcome(Done(), UNSET)


def test_a_broken_outcome_is_unchanged() -> None:
    assert task.check_outcome(Broken("x"), is_deleting=True) == CheckedOutcome(Broken("x"))


@pytest.mark.parametrize("result", [None, True, "done", Done, {"status": "done"}])
def test_a_result_that_is_not_an_outcome_is_broken(result: object) -> None:
    checked = task.check_outcome(result, is_deleting=False)

    assert checked.kind is OutcomeKind.BROKEN
    assert checked.outcome.reason == "InvalidResult"
    assert checked.outcome.message == f"expected an outcome such as Done(), got {type(result).__name__}"


@pytest.mark.parametrize(
    ("result", "field"),
    [(Done(message=5), "message"), (Failed(reason=ValueError("x")), "reason")],  # type: ignore[arg-type]
)
def test_a_message_or_reason_that_is_not_a_string_is_broken(result: Outcome, field: str) -> None:
    checked = task.check_outcome(result, is_deleting=False)

    assert checked.kind is OutcomeKind.BROKEN
    assert checked.outcome.message.startswith(f"{field}: expected text, got ")


def test_a_live_resource_cannot_be_finalized() -> None:
    assert task.check_outcome(Finalized(), is_deleting=False).kind is OutcomeKind.BROKEN


def test_done_from_a_finalizer_names_the_expected_outcome() -> None:
    checked = task.check_outcome(Done(), is_deleting=True)

    assert checked.kind is OutcomeKind.BROKEN
    assert "Finalized()" in checked.outcome.message


def recursive_list() -> list[object]:
    data: list[object] = []
    data.append(data)
    return data


@pytest.mark.parametrize("data", [object(), {1j: 2}, recursive_list(), "\ud800"])
def test_data_that_is_not_json_is_broken(data: object) -> None:
    checked = task.check_outcome(Done(data=data), is_deleting=False)

    assert checked.kind is OutcomeKind.BROKEN
    assert "cannot be encoded as JSON" in checked.outcome.message
    assert checked.data is UNSET


def test_data_is_accepted_up_to_the_limit() -> None:
    longest = "x" * (reports.MAX_DATA_BYTES - 2)

    assert task.check_outcome(Done(data=longest), is_deleting=False).kind is OutcomeKind.DONE
    assert task.check_outcome(Done(data=longest + "x"), is_deleting=False).kind is OutcomeKind.BROKEN


texts = st.text(st.characters(), max_size=5000)
outcomes = st.one_of(
    *(st.builds(kind, message=texts, reason=texts) for kind in (Done, InProgress, PreconditionsNotMet, Failed)),
    st.builds(Broken, message=texts, reason=texts),
)


@given(outcome=outcomes, is_deleting=st.booleans())
def test_the_api_accepts_every_truncated_report(outcome: Outcome | Broken, is_deleting: bool) -> None:
    truncated = task.truncated(CheckedOutcome(outcome)).outcome

    report = report_of(truncated, is_deleting=is_deleting)
    sent = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    verdict = reports.admit(sent, generation=3, stored=None, now=NOW)

    assert isinstance(verdict, reports.Accepted)
    assert set(MANDATORY) <= {condition.type for condition in sent.conditions}
    assert all("\0" not in f"{each.reason}{each.message}" for each in sent.conditions)


class BrokenText(str):
    """A string whose own methods fail."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise RuntimeError("no")


def test_subclasses_of_str_become_plain_strings() -> None:
    checked = task.check_outcome(Done(BrokenText("all is well"), reason=BrokenText("Fine")), is_deleting=False)

    report = task.report(checked, adapter="dns", generation=1, is_deleting=False, at=NOW)

    assert (report.conditions[0].message, report.conditions[0].reason) == ("all is well", "Fine")


def test_interrupted_work_is_in_progress() -> None:
    report = task.report(task.interrupted(), adapter="dns", generation=1, is_deleting=False, at=NOW)

    assert statuses(report) == [("Applied", TRUE), ("Available", UNKNOWN), ("Health", TRUE)]
    assert report.conditions[1].reason == "Interrupted"

"""Reports are accepted, discarded or rejected: the rules, and their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    HEALTH,
    AdapterStatus,
    ConditionStatus,
    DiscardReason,
    Report,
    ReportedCondition,
    WorkInProgress,
)
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, minute, report_of

NOW = minute(60)


def admit(
    report: Report, *, generation: int = 1, stored: AdapterStatus | None = None, now: datetime = NOW
) -> reports.Accepted | reports.Discarded | reports.Rejected:
    return reports.admit(report, generation=generation, stored=stored, now=now)


def stored(available: ConditionStatus = TRUE, *, at: int = 50, generation: int = 1) -> AdapterStatus:
    return reports.apply(report_of(available=available, at=at, generation=generation), None)


def fields(result: object) -> list[str]:
    assert isinstance(result, reports.Rejected)
    return [field for field, _ in result.errors]


def with_conditions(*conditions: ReportedCondition) -> Report:
    mandatory = report_of(at=60).conditions
    return msgspec.structs.replace(report_of(at=60), conditions=(*mandatory, *conditions))


# Form


@pytest.mark.parametrize("name", ["dns", "a", "my-adapter", "Adapter_2", "gcp.dns", "0", "x" * 63])
def test_names_of_existing_adapters_are_accepted(name: str) -> None:
    assert isinstance(admit(report_of(name, at=60)), reports.Accepted)


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "a\n", "dns\x00", "-dns", "dns-", ".", "..", "é", "x" * 64, "a%2Fb"]
)
def test_a_name_that_is_not_a_safe_segment_is_rejected(name: str) -> None:
    assert fields(admit(report_of(name, at=60))) == ["adapter"]


@pytest.mark.parametrize("generation", [0, -1, 2**63, 10**30])
def test_an_impossible_generation_is_rejected(generation: int) -> None:
    assert fields(admit(report_of(at=60, generation=generation))) == ["observed_generation"]


def test_the_largest_generation_is_discarded_as_future() -> None:
    result = admit(report_of(at=60, generation=2**63 - 1))

    assert result == reports.Discarded(DiscardReason.FUTURE_GENERATION)


@pytest.mark.parametrize("age", [timedelta(minutes=30), timedelta(minutes=-5)])
def test_a_time_on_the_boundary_is_accepted(age: timedelta) -> None:
    report = msgspec.structs.replace(report_of(), observed_time=NOW - age)

    assert isinstance(admit(report), reports.Accepted)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (NOW - timedelta(minutes=30, microseconds=1), "expected an observation at most 30 minutes old"),
        (NOW + timedelta(minutes=5, microseconds=1), "expected at most 5 minutes ahead of the server's clock"),
        (datetime(1, 1, 1, tzinfo=UTC), "expected an observation at most 30 minutes old"),
        (datetime(9999, 12, 31, 23, 59, tzinfo=UTC), "expected at most 5 minutes ahead of the server's clock"),
    ],
)
def test_a_time_beyond_the_boundary_is_rejected(observed: datetime, message: str) -> None:
    report = msgspec.structs.replace(report_of(), observed_time=observed)

    assert admit(report) == reports.Rejected((("observed_time", f"{message}, got {observed.isoformat()}"),))


def test_a_time_without_an_offset_is_rejected() -> None:
    report = msgspec.structs.replace(report_of(), observed_time=NOW.replace(tzinfo=None))

    assert fields(admit(report)) == ["observed_time"]


@pytest.mark.parametrize("empty", ["", " ", "\t\n"])
def test_a_condition_without_a_type_is_rejected(empty: str) -> None:
    assert fields(admit(with_conditions(ReportedCondition(empty, TRUE)))) == ["conditions[3].type"]


def test_a_duplicate_type_is_rejected_at_its_second_position() -> None:
    result = admit(with_conditions(ReportedCondition("Extra", TRUE), ReportedCondition("Extra", FALSE)))

    message = "expected each type once, got this one a second time"
    assert result == reports.Rejected((("conditions[4].type", message),))


def test_types_differ_in_case() -> None:
    assert isinstance(admit(with_conditions(ReportedCondition("available", FALSE))), reports.Accepted)


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("type", reports.MAX_TYPE_LENGTH),
        ("reason", reports.MAX_REASON_LENGTH),
        ("message", reports.MAX_MESSAGE_LENGTH),
    ],
)
def test_a_string_is_accepted_up_to_its_limit(field: str, limit: int) -> None:
    extra = ReportedCondition("Extra", TRUE)

    at_the_limit = admit(with_conditions(msgspec.structs.replace(extra, **{field: "x" * limit})))
    beyond = admit(with_conditions(msgspec.structs.replace(extra, **{field: "x" * (limit + 1)})))

    assert isinstance(at_the_limit, reports.Accepted)
    message = f"expected at most {limit} characters, got {limit + 1}"
    assert beyond == reports.Rejected(((f"conditions[3].{field}", message),))


def test_conditions_are_accepted_up_to_their_limit() -> None:
    extra = [ReportedCondition(f"Extra{n}", TRUE) for n in range(reports.MAX_CONDITIONS - 2)]

    assert isinstance(admit(with_conditions(*extra[:-1])), reports.Accepted)
    assert admit(with_conditions(*extra)) == reports.Rejected((("conditions", "expected at most 50, got 51"),))


def test_too_many_conditions_are_reported_as_one_error() -> None:
    result = admit(with_conditions(*[ReportedCondition("", TRUE)] * reports.MAX_CONDITIONS))

    assert fields(result) == ["conditions"]


@pytest.mark.parametrize("field", ["data", "metadata"])
def test_data_and_metadata_have_a_size_limit(field: str) -> None:
    def enclosing(size: int) -> Report:
        return msgspec.structs.replace(report_of(at=60), **{field: msgspec.Raw(b'"' + b"x" * (size - 2) + b'"')})

    assert isinstance(admit(enclosing(reports.MAX_DATA_BYTES)), reports.Accepted)
    assert fields(admit(enclosing(reports.MAX_DATA_BYTES + 1))) == [field]


def test_all_errors_are_reported_at_once() -> None:
    report = Report("", 0, minute(0), (ReportedCondition("", TRUE), ReportedCondition("", TRUE)))

    assert fields(admit(report)) == [
        "adapter",
        "observed_generation",
        "observed_time",
        "conditions[0].type",
        "conditions[1].type",
    ]


# Generation and time


def test_a_report_on_a_future_generation_is_discarded() -> None:
    assert admit(report_of(at=60, generation=2)) == reports.Discarded(DiscardReason.FUTURE_GENERATION)


def test_a_first_report_on_an_older_generation_is_accepted() -> None:
    assert isinstance(admit(report_of(at=60, generation=1), generation=3), reports.Accepted)


def test_a_report_never_replaces_one_on_a_newer_generation() -> None:
    result = admit(report_of(at=60, generation=1), generation=2, stored=stored(generation=2, at=50))

    assert result == reports.Discarded(DiscardReason.STALE_GENERATION)


def test_a_report_never_replaces_a_later_one_on_the_same_generation() -> None:
    assert admit(report_of(at=49), stored=stored(at=50)) == reports.Discarded(DiscardReason.STALE_TIME)


def test_a_newer_generation_is_accepted_with_an_earlier_time() -> None:
    result = admit(report_of(at=49, generation=2), generation=2, stored=stored(at=50, generation=1))

    assert isinstance(result, reports.Accepted)


def test_a_second_report_with_an_equal_time_replaces_the_first() -> None:
    result = admit(report_of(available=FALSE, at=50), stored=stored(TRUE, at=50))

    assert isinstance(result, reports.Accepted)
    assert result.status.status_of(AVAILABLE) is FALSE


def test_the_same_report_again_changes_nothing() -> None:
    first = admit(report_of(at=50))
    assert isinstance(first, reports.Accepted)

    assert admit(report_of(at=50), stored=first.status) == first


def test_offsets_of_time_zones_do_not_matter() -> None:
    east = msgspec.structs.replace(
        report_of(), observed_time=minute(50).astimezone(timezone(timedelta(hours=5, minutes=30)))
    )

    result = admit(east, stored=stored(at=50))

    assert isinstance(result, reports.Accepted)
    assert result.status.last_report_time == minute(50)
    assert result.status.last_report_time.tzinfo is UTC


# The mandatory conditions


@pytest.mark.parametrize("name", [APPLIED, AVAILABLE, HEALTH])
def test_a_report_without_a_mandatory_condition_is_rejected(name: str) -> None:
    report = report_of(at=60)
    lacking = msgspec.structs.replace(report, conditions=tuple(c for c in report.conditions if c.type != name))

    result = admit(lacking)

    assert result == reports.Rejected(
        (("conditions", f"expected all of Applied, Available, Health; missing: {name}"),)
    )


def test_a_report_without_conditions_lacks_all_three() -> None:
    result = admit(msgspec.structs.replace(report_of(at=60), conditions=()))

    assert isinstance(result, reports.Rejected)
    assert result.errors[0][1].endswith("missing: Applied, Available, Health")


def test_the_order_of_the_rules() -> None:
    known = stored(at=50, generation=2)
    incomplete = msgspec.structs.replace(report_of(), conditions=(ReportedCondition(AVAILABLE, UNKNOWN),))

    def result(**changes: object) -> object:
        return admit(msgspec.structs.replace(incomplete, **changes), generation=2, stored=known)

    assert fields(result(adapter="", observed_generation=3, observed_time=minute(60))) == ["adapter"]
    assert result(observed_generation=3, observed_time=minute(40)) == reports.Discarded(
        DiscardReason.FUTURE_GENERATION
    )
    assert result(observed_generation=1, observed_time=minute(40)) == reports.Discarded(
        DiscardReason.STALE_GENERATION
    )
    assert result(observed_generation=2, observed_time=minute(40)) == reports.Discarded(DiscardReason.STALE_TIME)
    assert fields(result(observed_generation=2, observed_time=minute(60))) == ["conditions"]


# Unknown


def test_the_first_unknown_of_an_adapter_is_accepted() -> None:
    result = admit(report_of(available=UNKNOWN, at=60))

    assert isinstance(result, reports.Accepted)
    assert result.status.status_of(AVAILABLE) is UNKNOWN


@pytest.mark.parametrize("known", [TRUE, FALSE, UNKNOWN])
@pytest.mark.parametrize("generation", [1, 2])
def test_a_later_unknown_is_always_discarded(known: ConditionStatus, generation: int) -> None:
    result = admit(
        report_of(available=UNKNOWN, at=60, generation=generation),
        generation=2,
        stored=stored(known, generation=1),
    )

    assert isinstance(result, reports.Discarded)
    assert result.reason is DiscardReason.UNKNOWN


@pytest.mark.parametrize("answer", [TRUE, FALSE])
def test_a_result_after_an_unknown_follows_the_usual_rules(answer: ConditionStatus) -> None:
    known = stored(UNKNOWN, at=50)

    assert isinstance(admit(report_of(available=answer, at=50), stored=known), reports.Accepted)
    assert admit(report_of(available=answer, at=49), stored=known) == reports.Discarded(DiscardReason.STALE_TIME)


def test_other_conditions_may_be_unknown() -> None:
    report = report_of(at=60)
    unsure = tuple(
        msgspec.structs.replace(each, status=UNKNOWN) if each.type == HEALTH else each
        for each in report.conditions
    )

    result = admit(msgspec.structs.replace(report, conditions=unsure), stored=stored())

    assert isinstance(result, reports.Accepted)


# Work in progress


def working(known: AdapterStatus, *, at: int, generation: int = 1, job: int = 1) -> AdapterStatus:
    """The status after an `Unknown`, which is discarded."""
    report = report_of(available=UNKNOWN, at=at, generation=generation, reason="Creating", message=f"job {job}")
    report = msgspec.structs.replace(report, data=msgspec.Raw(b'{"job":%d}' % job))
    result = admit(report, generation=2, stored=known)
    assert isinstance(result, reports.Discarded)
    assert result.reason is DiscardReason.UNKNOWN
    assert result.status is not None
    return result.status


@pytest.mark.parametrize("known", [TRUE, FALSE, UNKNOWN])
def test_a_discarded_unknown_is_kept_beside_the_report(known: ConditionStatus) -> None:
    before = stored(known, at=50)

    after = working(before, at=55, generation=2)

    work = WorkInProgress(2, minute(55), "Creating", "job 1", msgspec.Raw(b'{"job":1}'))
    assert after == msgspec.structs.replace(before, in_progress=work)


def test_only_the_latest_work_in_progress_is_kept() -> None:
    after = working(working(stored(at=50), at=55, job=1), at=55, job=2)

    assert isinstance(after.in_progress, WorkInProgress)
    assert (after.in_progress.report_time, after.in_progress.message) == (minute(55), "job 2")


@pytest.mark.parametrize("answer", [TRUE, FALSE])
def test_a_newer_result_ends_the_work_in_progress(answer: ConditionStatus) -> None:
    known = working(stored(FALSE, at=50), at=55)

    result = admit(report_of(available=answer, at=55), stored=known)

    assert isinstance(result, reports.Accepted)
    assert result.status.in_progress is msgspec.UNSET
    assert result.status.last_report_time == minute(55)


@pytest.mark.parametrize("available", [TRUE, FALSE, UNKNOWN])
def test_a_report_older_than_the_work_in_progress_is_discarded(available: ConditionStatus) -> None:
    known = working(stored(at=50), at=55, generation=2)

    stale_time = admit(report_of(available=available, at=54, generation=2), generation=2, stored=known)
    stale_generation = admit(report_of(available=available, at=59, generation=1), generation=2, stored=known)

    assert stale_time == reports.Discarded(DiscardReason.STALE_TIME)
    assert stale_generation == reports.Discarded(DiscardReason.STALE_GENERATION)


def test_a_newer_generation_ends_work_in_progress_despite_its_time() -> None:
    known = working(stored(at=50), at=55, generation=1)

    result = admit(report_of(at=51, generation=2), generation=2, stored=known)

    assert isinstance(result, reports.Accepted)
    assert result.status.in_progress is msgspec.UNSET


def test_an_unknown_that_is_sent_again_changes_nothing() -> None:
    first = admit(report_of(available=UNKNOWN, at=50))
    assert isinstance(first, reports.Accepted)
    known = working(first.status, at=55)

    first_again = admit(report_of(available=UNKNOWN, at=50), stored=first.status)

    assert first_again == reports.Discarded(DiscardReason.UNKNOWN, first.status)
    assert working(known, at=55) == known


# Stored status


def test_every_time_of_a_first_report_is_its_own() -> None:
    data = msgspec.Raw(b'{"zone":"a"}')
    report = msgspec.structs.replace(
        report_of(at=5, reason="Done", message="all records are there"), data=data, metadata=data
    )

    status = reports.apply(report, None)

    assert (status.adapter, status.observed_generation) == ("dns", 1)
    assert status.created_time == status.last_report_time == minute(5)
    assert {each.created_time for each in status.conditions} == {minute(5)}
    assert {each.last_transition_time for each in status.conditions} == {minute(5)}
    available = status.condition(AVAILABLE)
    assert available is not None
    assert (available.reason, available.message) == ("Done", "all records are there")
    assert status.data == status.metadata == data


def test_a_condition_keeps_its_transition_time_with_its_status() -> None:
    first = reports.apply(report_of(at=5, reason="Done"), None)

    second = reports.apply(report_of(at=6, generation=2, reason="StillDone"), first)

    available = second.condition(AVAILABLE)
    assert available is not None
    assert (available.last_transition_time, available.reason) == (minute(5), "StillDone")
    assert (second.created_time, second.last_report_time) == (minute(5), minute(6))


def test_a_changed_status_changes_only_the_transition_time() -> None:
    first = reports.apply(report_of(at=5), None)

    second = reports.apply(report_of(available=FALSE, at=6), first)

    available, health = second.condition(AVAILABLE), second.condition(HEALTH)
    assert available is not None
    assert health is not None
    assert (available.created_time, available.last_transition_time) == (minute(5), minute(6))
    assert health.last_transition_time == minute(5)


def test_a_report_replaces_the_whole_set_of_conditions() -> None:
    first = reports.apply(with_conditions(ReportedCondition("Extra", TRUE)), None)

    second = reports.apply(report_of(at=61), first)

    assert second.condition("Extra") is None
    assert second.data is msgspec.UNSET


# Properties

histories = st.lists(
    st.builds(
        report_of,
        available=st.sampled_from(ConditionStatus),
        at=st.integers(40, 60),
        generation=st.integers(1, 4),
    ),
    max_size=12,
)


@given(histories)
def test_the_stored_generation_and_time_never_decrease(history: list[Report]) -> None:
    known: AdapterStatus | None = None
    for report in history:
        before = known
        result = admit(report, generation=3, stored=known)
        if isinstance(result, reports.Accepted):
            known = result.status
        if before is not None and known is not None:
            assert (known.observed_generation, known.last_report_time) >= (
                before.observed_generation,
                before.last_report_time if known.observed_generation == before.observed_generation else minute(0),
            )
            assert known.created_time == before.created_time


@given(histories)
def test_a_stored_result_never_becomes_unknown(history: list[Report]) -> None:
    known: AdapterStatus | None = None
    has_result = False
    for report in history:
        result = admit(report, generation=3, stored=known)
        if isinstance(result, reports.Accepted):
            known = result.status
            has_result = has_result or known.status_of(AVAILABLE) is not UNKNOWN
        if has_result:
            assert known is not None
            assert known.status_of(AVAILABLE) is not UNKNOWN


@given(histories)
def test_resending_the_last_accepted_report_changes_nothing(history: list[Report]) -> None:
    known: AdapterStatus | None = None
    for report in history:
        result = admit(report, generation=3, stored=known)
        if isinstance(result, reports.Accepted):
            known = result.status
            again = admit(report, generation=3, stored=known)
            assert again in (result, reports.Discarded(DiscardReason.UNKNOWN, known))


@given(histories)
def test_work_in_progress_is_the_latest_unknown_after_the_report(history: list[Report]) -> None:
    known: AdapterStatus | None = None
    latest: Report | None = None
    for report in history:
        result = admit(report, generation=3, stored=known)
        if isinstance(result, reports.Accepted):
            known, latest = result.status, None
        elif isinstance(result, reports.Discarded) and result.status is not None:
            assert known is not None
            assert msgspec.structs.replace(result.status, in_progress=known.in_progress) == known
            if result.status != known:
                known, latest = result.status, report
        if known is not None:
            work = known.in_progress
            found = (work.observed_generation, work.report_time) if isinstance(work, WorkInProgress) else None
            assert found == (None if latest is None else (latest.observed_generation, latest.observed_time))
            assert known.newest >= (known.observed_generation, minute(0))

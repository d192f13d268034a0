"""A resource as a task gets it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from sentinel.core.adapter.resource import (
    KnownReport,
    Owner,
    Resource,
    ResourceCondition,
    known_report,
    read_document,
    read_statuses,
    with_reports,
)
from sentinel.core.fleet.documents import (
    AdapterCondition,
    AdapterStatus,
    ConditionStatus,
    ReportedCondition,
    WorkInProgress,
)
from sentinel.core.json import Malformed

AVAILABLE = ReportedCondition("Available", ConditionStatus.TRUE)
FULL = {
    "id": "n1",
    "kind": "NodePool",
    "name": "workers",
    "href": "/api/hyperfleet/v1/clusters/c1/nodepools/n1",
    "labels": {"region": "us-east"},
    "spec": {"replicas": 3},
    "generation": 2,
    "owner_references": {"id": "c1", "kind": "Cluster", "href": "/api/hyperfleet/v1/clusters/c1"},
    "deleted_time": "2025-10-17T10:00:00Z",
    "pulse_requested_time": "2025-10-17T11:00:00Z",
    "status": {
        "phase": "NotReady",
        "last_progress_time": "2025-10-17T12:00:00Z",
        "conditions": [{"type": "Ready", "status": "False", "reason": "Waiting"}],
    },
    "something": "else",
}


def resource(*reports: KnownReport, generation: int = 2) -> Resource:
    return Resource(id="c1", kind="Cluster", generation=generation, reports=reports)


def test_a_document_is_read_whole() -> None:
    read = read_document(msgspec.json.encode(FULL)).resource

    assert read == Resource(
        id="n1",
        kind="NodePool",
        name="workers",
        href="/api/hyperfleet/v1/clusters/c1/nodepools/n1",
        labels={"region": "us-east"},
        spec={"replicas": 3},
        generation=2,
        owner=Owner("c1", "Cluster", "/api/hyperfleet/v1/clusters/c1"),
        deleted_time=datetime(2025, 10, 17, 10, tzinfo=UTC),
        pulse_requested_time=datetime(2025, 10, 17, 11, tzinfo=UTC),
        last_progress_time=datetime(2025, 10, 17, 12, tzinfo=UTC),
        conditions=(ResourceCondition("Ready", ConditionStatus.FALSE, 0, "Waiting"),),
    )
    assert read.is_deleting


@pytest.mark.parametrize("status", [{}, {"conditions": None}, None])
def test_a_document_needs_only_id_kind_and_generation(status: object) -> None:
    body = msgspec.json.encode({"id": "c1", "kind": "Cluster", "generation": 1, "labels": None, "status": status})

    read = read_document(body, href="/api/hyperfleet/v1/clusters/c1").resource

    assert read == Resource(id="c1", kind="Cluster", generation=1, href="/api/hyperfleet/v1/clusters/c1")
    assert not read.is_deleting


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"<html>",
        b'{"id": "c1"}',
        b'{"id": "", "kind": "Cluster", "generation": 1}',
        b'{"id": "c1", "kind": "", "generation": 1}',
        b'{"id": "c1", "kind": "Cluster", "generation": 0}',
    ],
)
def test_anything_else_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_document(body)


def test_a_page_of_reports_is_read() -> None:
    page = read_statuses(
        b'{"page":1,"size":1,"total":7,"items":[{"adapter":"dns","observed_generation":2,'
        b'"last_report_time":"2025-10-17T10:00:00Z","data":{"zone":"z1"},'
        b'"conditions":[{"type":"Available","status":"True","created_time":"2025-10-17T10:00:00Z"}]}]}'
    )

    [known] = page.items
    assert page.total == 7
    assert known.adapter == "dns"
    assert known.last_report_time == datetime(2025, 10, 17, 10, tzinfo=UTC)
    assert known.read_data() == {"zone": "z1"}
    assert known.status_of("Available") is ConditionStatus.TRUE
    assert known.status_of("Health") is None


def test_an_adapter_is_available_at_the_current_generation() -> None:
    seen = resource(KnownReport("validation", 2, (AVAILABLE,)))

    assert seen.is_available("validation")
    assert seen.status_of("validation") is ConditionStatus.TRUE


def test_a_report_on_another_generation_does_not_count() -> None:
    seen = resource(KnownReport("validation", 1, (AVAILABLE,)))

    assert not seen.is_available("validation")
    assert seen.status_of("validation") is None
    assert seen.report_of("validation") is not None


def test_an_adapter_without_a_report_is_not_available() -> None:
    assert not resource().is_available("validation")
    assert resource().report_of("validation") is None


def test_a_report_without_data_has_none() -> None:
    assert KnownReport("dns", 1, ()).read_data() is None


def test_aggregated_conditions_are_found_by_their_type() -> None:
    read = read_document(msgspec.json.encode(FULL)).resource

    assert read.condition("Ready") == ResourceCondition("Ready", ConditionStatus.FALSE, 0, "Waiting")
    assert read.condition("Available") is None


def test_reports_are_added_to_what_was_read() -> None:
    known = KnownReport("dns", 1, (AVAILABLE,))

    assert with_reports(resource(), [known]).reports == (known,)


@pytest.mark.parametrize("statuses", [None, [], [{"adapter": "dns", "observed_generation": 1, "conditions": []}]])
def test_a_document_may_include_the_reports(statuses: list[object] | None) -> None:
    body = FULL if statuses is None else {**FULL, "statuses": statuses}

    read = read_document(msgspec.json.encode(body))

    assert read.has_reports is (statuses is not None)
    assert read.resource.reports == ((KnownReport("dns", 1, ()),) if statuses else ())


REPORTED = datetime(2025, 10, 17, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GO_ZERO = datetime(1, 1, 1, tzinfo=UTC)
"""How a Go server writes an unset time."""
NEVER = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
"""A time beyond the last one that UTC can represent."""


def reported(
    *, generation: int = 2, reason: str = "Completed", at: datetime | None = REPORTED, **fields: datetime
) -> Resource:
    condition = ReportedCondition("Available", ConditionStatus.TRUE, reason)
    return msgspec.structs.replace(resource(KnownReport("dns", generation, (condition,), at)), **fields)


def is_fresh(known: Resource, *, age: timedelta = MINUTE, max_age: timedelta = 2 * MINUTE) -> bool:
    return known.has_fresh_report("dns", now=REPORTED + age, max_age=max_age)


def test_a_report_is_fresh_until_its_max_age() -> None:
    assert is_fresh(reported())
    assert is_fresh(reported(at=REPORTED.replace(tzinfo=None)))
    assert not is_fresh(reported(), age=2 * MINUTE)
    assert not is_fresh(reported(), age=-MINUTE)
    assert not is_fresh(reported(), max_age=timedelta(0))


@pytest.mark.parametrize(
    "known",
    [
        resource(),
        reported(generation=1),
        reported(at=None),
        reported(at=GO_ZERO),
        reported(reason="Interrupted"),
        reported(pulse_requested_time=REPORTED),
        reported(pulse_requested_time=REPORTED + MINUTE),
        reported(last_progress_time=REPORTED),
        reported(last_progress_time=REPORTED + MINUTE),
        reported(last_progress_time=NEVER),
    ],
)
def test_a_report_is_not_fresh_after_a_change_or_a_request(known: Resource) -> None:
    assert not is_fresh(known)


def test_a_report_answers_earlier_requests() -> None:
    assert is_fresh(reported(pulse_requested_time=REPORTED - MINUTE, last_progress_time=REPORTED - MINUTE))
    assert is_fresh(reported(pulse_requested_time=GO_ZERO, last_progress_time=GO_ZERO))


def test_a_report_without_a_condition_has_no_reason_for_it() -> None:
    assert KnownReport("dns", 1, ()).reason_of("Available") == ""


# Work in progress

WORK = WorkInProgress(2, REPORTED, "InProgress", "a job runs", msgspec.Raw(b'{"job":7}'))


def working(work: WorkInProgress | None = WORK, *, reported_at: datetime = REPORTED - MINUTE) -> Resource:
    return resource(KnownReport("dns", 2, (AVAILABLE,), reported_at, msgspec.Raw(b'{"job":6}'), work))


def test_the_newest_of_an_adapter_is_its_work_in_progress() -> None:
    newest = working().newest_of("dns")

    assert newest is not None
    assert (newest.observed_generation, newest.last_report_time) == (2, REPORTED)
    assert newest.conditions == (
        ReportedCondition("Available", ConditionStatus.UNKNOWN, "InProgress", "a job runs"),
    )
    assert newest.read_data() == {"job": 7}


def test_without_work_in_progress_the_newest_is_the_report() -> None:
    known = working(None)

    assert known.newest_of("dns") == known.report_of("dns")
    assert known.newest_of("billing") is None


def test_work_in_progress_does_not_end_availability() -> None:
    assert working().is_available("dns")


def test_work_in_progress_is_a_fresh_report_unless_it_was_interrupted() -> None:
    old = REPORTED - 60 * MINUTE
    interrupted = msgspec.structs.replace(WORK, reason="Interrupted")

    assert is_fresh(working(reported_at=old))
    assert not is_fresh(working(None, reported_at=old))
    assert not is_fresh(working(interrupted))
    assert not is_fresh(working(msgspec.structs.replace(WORK, observed_generation=1)))


@pytest.mark.parametrize("work", [UNSET, WORK])
def test_a_stored_status_becomes_the_report_that_a_task_gets(work: WorkInProgress | UnsetType) -> None:
    condition = AdapterCondition("Available", ConditionStatus.TRUE, "Done", "all there", REPORTED, REPORTED)
    data = msgspec.Raw(b"{}")
    status = AdapterStatus("dns", 2, REPORTED, REPORTED, (condition,), data=data, in_progress=work)

    known = known_report(status)

    reported = ReportedCondition("Available", ConditionStatus.TRUE, "Done", "all there")
    assert known == KnownReport("dns", 2, (reported,), REPORTED, data, work or None)

"""Progress: when a required adapter last became available, and how many times one has."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sentinel.core.fleet import documents, lifecycle, reports, why
from sentinel.core.fleet.documents import KindRules, ResourceStatus
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import observe
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of
from tests.support.fleet.resource_state import new_resource

RULES = AggregationRules(KindRules("clusters", "Cluster", "", ("dns", "validation")))


def created() -> ResourceState:
    return new_resource(RULES, now=minute(0))


def progress_of(status: ResourceStatus) -> tuple[object, object]:
    return status.last_progress_time, status.progress_count


def test_there_is_no_progress_until_an_adapter_becomes_available() -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", UNKNOWN, at=1)
    cluster.report("validation", FALSE, at=2)

    assert progress_of(cluster.status) == (UNSET, UNSET)
    assert b"progress" not in msgspec.json.encode(cluster.status)


def test_progress_is_the_latest_time_an_adapter_became_available() -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("validation", TRUE, at=1)
    first = progress_of(cluster.status)
    cluster.report("dns", TRUE, at=2)

    assert first == (minute(1), 1)
    assert progress_of(cluster.status) == (minute(2), 2)


def test_a_repeated_or_withdrawn_condition_is_not_progress() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)

    for at, available in ((2, TRUE), (3, UNKNOWN), (4, FALSE), (5, FALSE)):
        cluster.report("dns", available, at=at)

        assert progress_of(cluster.status) == (minute(1), 1)

    cluster.report("dns", TRUE, at=6)

    assert progress_of(cluster.status) == (minute(6), 2)


def test_a_new_spec_needs_new_progress_of_every_adapter() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("validation", TRUE, at=1)

    cluster.patch(at=2)
    by_the_change = progress_of(cluster.status)
    cluster.report("validation", TRUE, at=3)
    by_the_report = progress_of(cluster.status)
    cluster.report("validation", TRUE, at=4)

    assert by_the_change == (minute(1), 1)
    assert by_the_report == progress_of(cluster.status) == (minute(3), 2)


def test_an_older_generation_is_not_progress() -> None:
    cluster = OneResource("dns")
    cluster.patch(at=1)

    cluster.report("dns", TRUE, at=2, generation=1)

    assert progress_of(cluster.status) == (UNSET, UNSET)


def test_an_adapter_that_is_not_required_makes_no_progress() -> None:
    cluster = OneResource("dns")

    cluster.report("billing", TRUE, at=1)

    assert progress_of(cluster.status) == (UNSET, UNSET)


def test_a_newly_required_adapter_progressed_at_its_transition() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=2)
    for at in (1, 3, 4):
        cluster.report("billing", TRUE, at=at)

    cluster.require("dns", "billing")

    assert progress_of(cluster.status) == (minute(2), 2)


def test_progress_by_a_slow_clock_changes_only_the_count() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("validation", TRUE, at=5)

    cluster.report("dns", TRUE, at=3)

    assert progress_of(cluster.status) == (minute(5), 2)


def test_a_document_stored_without_progress_is_read() -> None:
    stored = documents.encode_document(created().document)
    assert b"progress" not in stored

    document = documents.decode_document(stored)
    verdict = reports.admit(report_of("dns", TRUE, at=1), generation=1, stored=None, now=minute(1))
    assert isinstance(verdict, reports.Accepted)
    updated = lifecycle.with_status(ResourceState(document), RULES, verdict.status, children=0)

    assert progress_of(document.status) == (UNSET, UNSET)
    assert observe(stored).last_progress_time is None
    assert progress_of(updated.document.status) == (minute(1), 1)


reported = st.tuples(
    st.sampled_from(("dns", "validation")), st.sampled_from((TRUE, FALSE, UNKNOWN)), st.integers(0, 20)
)


@given(st.lists(reported | st.none(), max_size=20))
def test_the_progress_time_changes_only_with_progress_and_never_decreases(
    steps: list[tuple[str, documents.ConditionStatus, int] | None],
) -> None:
    """A step is a report, or None for a change of the spec. Times are in any order."""
    cluster = OneResource("dns", "validation")
    done: set[str] = set()
    for step in steps:
        before = cluster.status
        completed: set[str] = set()
        if step is None:
            cluster.patch(at=0)
            done.clear()
        else:
            cluster.report(step[0], step[1], at=step[2])
            current = cluster.statuses.get(step[0])
            is_done = (
                current is not None
                and current.observed_generation == cluster.generation
                and current.status_of("Available") is TRUE
            )
            completed = {step[0]} - done if is_done else set()
            done = done | {step[0]} if is_done else done - {step[0]}

        after = cluster.status

        assert (after.progress_count or 0) == (before.progress_count or 0) + len(completed)
        if isinstance(before.last_progress_time, datetime):
            assert isinstance(after.last_progress_time, datetime)
            assert after.last_progress_time >= before.last_progress_time
        if completed:
            # The time of the status is that of the oldest report, and this report is one of them.
            assert isinstance(after.last_progress_time, datetime)
            assert after.last_progress_time >= after.last_updated_time
        else:
            assert progress_of(after) == progress_of(before)


def test_why_reports_progress_as_due_now() -> None:
    state = created()
    cluster = OneResource("dns", "validation")
    cluster.report("validation", TRUE, at=1)
    cluster.report("dns", FALSE, at=2)
    for status in cluster.statuses.values():
        state = lifecycle.with_status(state, RULES, status, children=0)

    policy = Policy(timedelta(seconds=10), timedelta(minutes=30), follows_progress=True)
    found = why.explain(
        state.document, statuses=(), waiting={}, required=(), children=0, policy=policy, now=minute(2)
    )

    assert found.next_pulse == minute(2)
    *_, next_pulse = why.sentences(found, now=minute(2), duration=str)
    assert next_pulse == "next pulse due now, and every 0:00:10 until it is answered: adapter progressed"

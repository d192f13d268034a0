"""The agreed rules, edge cases and scenarios of pulses, adapters and the API, one test each."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    HEALTH,
    ConditionStatus,
    DiscardReason,
    Phase,
    ReportedCondition,
)
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of

# Rules of the API


def test_rule_1_a_report_never_replaces_one_on_a_newer_generation(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)
    ready_cluster.report("validation", TRUE, at=4)
    before = ready_cluster.status

    late = ready_cluster.report("validation", FALSE, at=5, generation=1)
    same = ready_cluster.report("validation", TRUE, at=6, generation=2)

    assert late == reports.Discarded(DiscardReason.STALE_GENERATION)
    assert isinstance(same, reports.Accepted)
    assert ready_cluster.available == before.condition(AVAILABLE)


def test_rule_2_unknown_is_discarded_and_changes_no_time(ready_cluster: OneResource) -> None:
    before = ready_cluster.status

    verdict = ready_cluster.report("dns", UNKNOWN, at=30)

    assert isinstance(verdict, reports.Discarded)
    assert verdict.reason is DiscardReason.UNKNOWN
    assert ready_cluster.status == before


def test_rule_2_the_first_unknown_is_stored_and_does_not_count() -> None:
    cluster = OneResource("dns")
    before = cluster.status

    verdict = cluster.report("dns", UNKNOWN, at=1)

    assert isinstance(verdict, reports.Accepted)
    assert "dns" in cluster.statuses
    assert cluster.status == before
    assert cluster.status.observed_generation == 0


def test_rule_3_available_needs_all_adapters_at_one_generation() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)
    alone = cluster.available
    cluster.patch(at=2)
    cluster.report("validation", TRUE, at=3)
    mixed = cluster.available
    cluster.report("dns", TRUE, at=4)

    assert alone.status is FALSE
    assert mixed.status is FALSE
    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 2)


def test_rule_3_the_one_generation_may_be_older_than_the_spec() -> None:
    cluster = OneResource("dns", "validation")
    cluster.patch(at=1)
    cluster.patch(at=2)

    cluster.report("dns", TRUE, at=3, generation=1)
    cluster.report("validation", TRUE, at=4, generation=1)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 1)
    assert cluster.ready.status is FALSE
    assert cluster.status.observed_generation == 1


def test_rule_3_newer_reports_take_over() -> None:
    cluster = OneResource("dns", "validation")
    cluster.patch(at=1)
    for generation in (1, 2):
        cluster.report("dns", TRUE, at=2 + generation, generation=generation)
        cluster.report("validation", TRUE, at=4 + generation, generation=generation)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 2)
    assert cluster.ready.is_true


def test_rule_4_a_failure_at_its_generation_ends_available(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", FALSE, at=5)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (FALSE, 1)


def test_rule_4_a_failure_at_another_generation_ends_only_ready(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    ready_cluster.report("dns", FALSE, at=5)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 1)
    assert ready_cluster.ready.status is FALSE


def test_rule_4_even_when_all_adapters_fail_at_another_generation(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    ready_cluster.report("dns", FALSE, at=5)
    ready_cluster.report("validation", FALSE, at=6)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 1)


def test_rule_5_ready_becomes_false_with_every_change_of_the_spec(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    assert (ready_cluster.ready.status, ready_cluster.ready.observed_generation) == (FALSE, 2)
    assert ready_cluster.ready.last_transition_time == ready_cluster.ready.last_updated_time == minute(3)
    assert ready_cluster.status.phase is Phase.NOT_READY
    assert ready_cluster.available.is_true


# Edge cases


def test_edge_1_a_check_in_progress_leaves_a_ready_cluster_ready(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", UNKNOWN, at=32)

    assert ready_cluster.ready.is_true
    assert ready_cluster.status.last_updated_time == minute(1)


def test_edge_2_with_mixed_generations_available_stays_at_the_old(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    ready_cluster.report("dns", TRUE, at=4)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 1)
    assert ready_cluster.ready.status is FALSE
    assert ready_cluster.status.observed_generation == 1


def test_edge_2_a_failure_at_the_new_generation_ends_only_ready(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    ready_cluster.report("dns", FALSE, at=4)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 1)
    assert ready_cluster.available.last_updated_time == minute(1)
    assert ready_cluster.ready.status is FALSE


def test_edge_3_unavailable_stays_until_all_adapters_agree(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", FALSE, at=5)
    ready_cluster.patch(at=6)

    ready_cluster.report("dns", TRUE, at=7)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (FALSE, 2)
    assert ready_cluster.available.last_transition_time == ready_cluster.available.last_updated_time == minute(5)
    assert ready_cluster.ready.status is FALSE

    ready_cluster.report("validation", TRUE, at=8)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 2)
    assert ready_cluster.ready.is_true


# Stored report of the adapter × state of its task


class Scenario(msgspec.Struct, frozen=True):
    """The expected result of a report of the only required adapter."""

    is_accepted: bool
    ready: ConditionStatus
    available: ConditionStatus
    available_generation: int
    observed_generation: int
    updated: int
    """The minute of `last_updated_time`."""


NOTHING, OLDER, SAME = "no condition", "an older generation", "the same generation"
ABSENT, IN_PROGRESS, SUCCEEDED, FAILED = (
    "no task",
    "a task in progress",
    "a task that succeeded",
    "one that failed",
)

# An adapter that finds no task for this generation starts one, which is then in progress.
REPORTED = {
    ABSENT: (TRUE, UNKNOWN, TRUE),
    IN_PROGRESS: (TRUE, UNKNOWN, TRUE),
    SUCCEEDED: (TRUE, TRUE, TRUE),
    FAILED: (TRUE, FALSE, TRUE),
}

SCENARIOS = {
    # (accepted, Ready, Available, generation of Available, observed generation, minute of the last update)
    NOTHING: {
        ABSENT: Scenario(True, FALSE, FALSE, 1, 0, 0),
        IN_PROGRESS: Scenario(True, FALSE, FALSE, 1, 0, 0),
        SUCCEEDED: Scenario(True, TRUE, TRUE, 1, 1, 9),
        FAILED: Scenario(True, FALSE, FALSE, 1, 1, 9),
    },
    OLDER: {
        ABSENT: Scenario(False, FALSE, TRUE, 1, 1, 2),
        IN_PROGRESS: Scenario(False, FALSE, TRUE, 1, 1, 2),
        SUCCEEDED: Scenario(True, TRUE, TRUE, 2, 2, 9),
        FAILED: Scenario(True, FALSE, TRUE, 1, 2, 9),
    },
    SAME: {
        ABSENT: Scenario(False, TRUE, TRUE, 2, 2, 3),
        IN_PROGRESS: Scenario(False, TRUE, TRUE, 2, 2, 3),
        SUCCEEDED: Scenario(True, TRUE, TRUE, 2, 2, 9),
        FAILED: Scenario(True, FALSE, FALSE, 2, 2, 9),
    },
}


@pytest.mark.parametrize("task", REPORTED)
@pytest.mark.parametrize("known", SCENARIOS)
def test_every_scenario_gives_the_agreed_conditions(known: str, task: str) -> None:
    cluster = OneResource("dns")
    if known != NOTHING:
        cluster.report("dns", TRUE, at=1)
        cluster.patch(at=2)
    if known == SAME:
        cluster.report("dns", TRUE, at=3)
    statuses = zip((APPLIED, AVAILABLE, HEALTH), REPORTED[task], strict=True)
    report = msgspec.structs.replace(
        report_of(at=9, generation=cluster.generation),
        conditions=tuple(ReportedCondition(name, status) for name, status in statuses),
    )

    verdict = cluster.send(report)

    outcome = Scenario(
        isinstance(verdict, reports.Accepted),
        cluster.ready.status,
        cluster.available.status,
        cluster.available.observed_generation,
        cluster.status.observed_generation,
        round((cluster.status.last_updated_time - minute(0)).total_seconds() / 60),
    )
    assert outcome == SCENARIOS[known][task]


def test_every_scenario_is_there() -> None:
    assert {known: set(tasks) for known, tasks in SCENARIOS.items()} == {
        known: {ABSENT, IN_PROGRESS, SUCCEEDED, FAILED} for known in (NOTHING, OLDER, SAME)
    }


@pytest.mark.parametrize(
    ("applied", "available", "health"),
    [
        pytest.param(FALSE, FALSE, TRUE, id="preconditions not met"),
        pytest.param(FALSE, FALSE, FALSE, id="the adapter's own error"),
    ],
)
def test_a_report_of_nothing_done_keeps_the_resource_fresh_and_not_ready(
    applied: ConditionStatus, available: ConditionStatus, health: ConditionStatus
) -> None:
    cluster = OneResource("dns")
    statuses = zip((APPLIED, AVAILABLE, HEALTH), (applied, available, health), strict=True)

    cluster.send(
        msgspec.structs.replace(
            report_of(at=9), conditions=tuple(ReportedCondition(name, status) for name, status in statuses)
        )
    )

    assert cluster.ready.status is FALSE
    assert cluster.status.last_updated_time == minute(9)
    assert cluster.status.observed_generation == 1

"""The rules, edge cases and scenarios that pulses, adapters and the API have agreed on, one test each."""

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


def ready_at_generation_1() -> OneResource:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)
    cluster.report("validation", TRUE, at=2)
    assert cluster.ready.is_true
    return cluster


# The API's rules


def test_rule_1_an_adapters_report_never_replaces_its_report_on_a_newer_generation() -> None:
    cluster = ready_at_generation_1()
    cluster.patch(at=3)
    cluster.report("validation", TRUE, at=4)
    before = cluster.status

    late = cluster.report("validation", FALSE, at=5, generation=1)
    same = cluster.report("validation", TRUE, at=6, generation=2)

    assert late == reports.Discarded(DiscardReason.STALE_GENERATION)
    assert isinstance(same, reports.Accepted)
    assert cluster.available == before.condition(AVAILABLE)


def test_rule_2_unknown_is_discarded_and_moves_no_time() -> None:
    cluster = ready_at_generation_1()
    before = cluster.status

    verdict = cluster.report("dns", UNKNOWN, at=30)

    assert verdict == reports.Discarded(DiscardReason.UNKNOWN)
    assert cluster.status == before


def test_rule_2_the_first_unknown_is_kept_for_tracing_and_counts_for_nothing() -> None:
    cluster = OneResource("dns")
    before = cluster.status

    verdict = cluster.report("dns", UNKNOWN, at=1)

    assert isinstance(verdict, reports.Accepted)
    assert "dns" in cluster.statuses
    assert cluster.status == before
    assert cluster.status.observed_generation == 0


def test_rule_3_available_becomes_true_only_when_all_adapters_say_so_of_one_generation() -> None:
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


def test_rule_3_newer_answers_take_over_in_the_end() -> None:
    cluster = OneResource("dns", "validation")
    cluster.patch(at=1)
    for generation in (1, 2):
        cluster.report("dns", TRUE, at=2 + generation, generation=generation)
        cluster.report("validation", TRUE, at=4 + generation, generation=generation)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 2)
    assert cluster.ready.is_true


def test_rule_4_available_becomes_false_when_an_adapter_says_so_of_its_generation() -> None:
    cluster = ready_at_generation_1()

    cluster.report("dns", FALSE, at=5)

    assert (cluster.available.status, cluster.available.observed_generation) == (FALSE, 1)


def test_rule_4_a_failure_at_another_generation_leaves_available_true_while_ready_is_false() -> None:
    cluster = ready_at_generation_1()
    cluster.patch(at=3)

    cluster.report("dns", FALSE, at=5)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 1)
    assert cluster.ready.status is FALSE


def test_rule_4_even_when_all_adapters_fail_at_another_generation() -> None:
    cluster = ready_at_generation_1()
    cluster.patch(at=3)

    cluster.report("dns", FALSE, at=5)
    cluster.report("validation", FALSE, at=6)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 1)


def test_rule_5_ready_becomes_false_with_every_change_of_the_spec() -> None:
    cluster = ready_at_generation_1()

    cluster.patch(at=3)

    assert (cluster.ready.status, cluster.ready.observed_generation) == (FALSE, 2)
    assert cluster.ready.last_transition_time == cluster.ready.last_updated_time == minute(3)
    assert cluster.status.phase is Phase.NOT_READY
    assert cluster.available.is_true


# The edge cases


def test_edge_1_a_check_in_progress_leaves_a_ready_cluster_ready() -> None:
    cluster = ready_at_generation_1()

    cluster.report("dns", UNKNOWN, at=32)

    assert cluster.ready.is_true
    assert cluster.status.last_updated_time == minute(1)


def test_edge_2_with_mixed_generations_a_cluster_is_available_at_the_old_one_and_not_ready() -> None:
    cluster = ready_at_generation_1()
    cluster.patch(at=3)

    cluster.report("dns", TRUE, at=4)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 1)
    assert cluster.ready.status is FALSE
    assert cluster.status.observed_generation == 1


def test_edge_2_a_failure_at_the_new_generation_makes_it_not_ready_and_still_available_at_the_old() -> None:
    cluster = ready_at_generation_1()
    cluster.patch(at=3)

    cluster.report("dns", FALSE, at=4)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 1)
    assert cluster.available.last_updated_time == minute(1)
    assert cluster.ready.status is FALSE


def test_edge_3_a_cluster_that_fell_stays_so_at_the_newest_reported_generation_until_all_agree() -> None:
    cluster = ready_at_generation_1()
    cluster.report("dns", FALSE, at=5)
    cluster.patch(at=6)

    cluster.report("dns", TRUE, at=7)

    assert (cluster.available.status, cluster.available.observed_generation) == (FALSE, 2)
    assert cluster.available.last_transition_time == cluster.available.last_updated_time == minute(5)
    assert cluster.ready.status is FALSE

    cluster.report("validation", TRUE, at=8)

    assert (cluster.available.status, cluster.available.observed_generation) == (TRUE, 2)
    assert cluster.ready.is_true


# What the API knows of the adapter, against what the adapter finds


class Scenario(msgspec.Struct, frozen=True):
    """What comes out where an adapter meets a resource; the adapter is the only one that is required."""

    is_taken: bool
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

# An adapter that finds no task for this generation starts one, and then it is in progress.
REPORTED = {
    ABSENT: (TRUE, UNKNOWN, TRUE),
    IN_PROGRESS: (TRUE, UNKNOWN, TRUE),
    SUCCEEDED: (TRUE, TRUE, TRUE),
    FAILED: (TRUE, FALSE, TRUE),
}

SCENARIOS = {
    # (taken?, Ready, Available, its generation, observed generation, minute of the last update)
    (NOTHING, ABSENT): Scenario(True, FALSE, FALSE, 1, 0, 0),
    (NOTHING, IN_PROGRESS): Scenario(True, FALSE, FALSE, 1, 0, 0),
    (NOTHING, SUCCEEDED): Scenario(True, TRUE, TRUE, 1, 1, 9),
    (NOTHING, FAILED): Scenario(True, FALSE, FALSE, 1, 1, 9),
    (OLDER, ABSENT): Scenario(False, FALSE, TRUE, 1, 1, 2),
    (OLDER, IN_PROGRESS): Scenario(False, FALSE, TRUE, 1, 1, 2),
    (OLDER, SUCCEEDED): Scenario(True, TRUE, TRUE, 2, 2, 9),
    (OLDER, FAILED): Scenario(True, FALSE, TRUE, 1, 2, 9),
    (SAME, ABSENT): Scenario(False, TRUE, TRUE, 2, 2, 3),
    (SAME, IN_PROGRESS): Scenario(False, TRUE, TRUE, 2, 2, 3),
    (SAME, SUCCEEDED): Scenario(True, TRUE, TRUE, 2, 2, 9),
    (SAME, FAILED): Scenario(True, FALSE, FALSE, 2, 2, 9),
}


@pytest.mark.parametrize(("known", "task"), [pytest.param(*key, id=f"{key[0]} and {key[1]}") for key in SCENARIOS])
def test_every_task_means_for_conditions_what_was_agreed(known: str, task: str) -> None:
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
    assert outcome == SCENARIOS[known, task]


def test_every_scenario_is_there() -> None:
    assert len(SCENARIOS) == 3 * 4


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

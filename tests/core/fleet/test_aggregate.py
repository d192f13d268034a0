"""Aggregated conditions and flat fields: their values, and when they change."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.core.fleet import aggregate, reports
from sentinel.core.fleet.documents import Phase
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of

# Flat fields


def test_a_new_resource_has_its_conditions_from_the_start() -> None:
    cluster = OneResource("dns")

    assert [each.type for each in cluster.status.conditions] == ["Ready", "Available"]
    for condition in cluster.status.conditions:
        assert (condition.status, condition.observed_generation) == (FALSE, 1)
        assert condition.created_time == condition.last_updated_time == condition.last_transition_time == minute(0)
    assert cluster.status.phase is Phase.NOT_READY
    assert cluster.status.observed_generation == 0
    assert cluster.status.last_updated_time == cluster.status.last_transition_time == minute(0)


def test_the_observed_generation_is_0_while_an_adapter_is_missing() -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", TRUE, at=1)

    assert cluster.status.observed_generation == 0


def test_an_adapter_that_only_reported_unknown_is_missing() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)

    cluster.report("validation", UNKNOWN, at=2)

    assert cluster.status.observed_generation == 0
    assert cluster.status.last_updated_time == minute(1)


def test_the_observed_generation_is_the_lowest_reported() -> None:
    cluster = OneResource("dns", "validation")
    for at in (1, 2):
        cluster.patch(at=at)

    cluster.report("dns", FALSE, at=3, generation=3)
    cluster.report("validation", TRUE, at=4, generation=2)

    assert cluster.status.observed_generation == 2


def test_an_adapter_that_is_not_required_changes_nothing() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)
    before = cluster.status

    cluster.report("billing", FALSE, at=2)

    assert cluster.status == before


def test_a_status_ahead_of_the_resource_does_not_count() -> None:
    cluster = OneResource("dns")
    before = cluster.status
    cluster.statuses["dns"] = reports.apply(report_of(generation=2), None)

    assert cluster.refresh(at=minute(1)) == before


def test_a_status_without_available_does_not_count() -> None:
    cluster = OneResource("dns")
    before = cluster.status
    cluster.statuses["dns"] = reports.apply(msgspec.structs.replace(report_of(), conditions=()), None)

    assert cluster.refresh(at=minute(1)) == before


def test_the_flat_times_are_those_of_ready(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", TRUE, at=3)

    assert ready_cluster.status.last_updated_time == ready_cluster.ready.last_updated_time == minute(2)
    assert ready_cluster.status.last_transition_time == ready_cluster.ready.last_transition_time == minute(2)
    assert ready_cluster.status.phase is Phase.READY


def test_without_required_adapters_nothing_is_ever_ready() -> None:
    cluster = OneResource()
    cluster.patch(at=1)

    cluster.report("dns", TRUE, at=2)

    assert (cluster.ready.status, cluster.ready.observed_generation) == (FALSE, 2)
    assert cluster.ready.last_updated_time == minute(1)
    assert cluster.ready.reason == cluster.available.reason == "NoRequiredAdapters"
    assert (cluster.available.status, cluster.available.observed_generation) == (FALSE, 1)
    assert cluster.status.observed_generation == 0
    assert cluster.waiting == {}


# Ready


def test_ready_has_the_time_of_the_oldest_report_at_its_generation() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("validation", FALSE, at=1)
    cluster.report("dns", TRUE, at=2)
    cluster.patch(at=3)
    on_no_report = cluster.ready.last_updated_time

    cluster.report("dns", FALSE, at=5)
    on_one = cluster.ready.last_updated_time
    cluster.report("validation", TRUE, at=4)

    assert (on_no_report, on_one, cluster.ready.last_updated_time) == (minute(3), minute(5), minute(4))


def test_ready_is_always_at_the_resources_generation() -> None:
    cluster = OneResource("dns")
    cluster.patch(at=1)

    cluster.report("dns", TRUE, at=2, generation=1)

    assert (cluster.ready.status, cluster.ready.observed_generation) == (FALSE, 2)


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 1)])
def test_ready_becomes_true_at_the_time_of_the_last_missing_report(first: int, last: int) -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", TRUE, at=first)
    cluster.report("validation", TRUE, at=last)

    assert cluster.ready.is_true
    assert (cluster.ready.last_updated_time, cluster.ready.last_transition_time) == (minute(1), minute(last))
    assert cluster.ready.created_time == minute(0)


def test_ready_keeps_its_transition_time_with_more_reports() -> None:
    cluster = OneResource("dns")

    for at in (1, 2, 3):
        cluster.report("dns", TRUE, at=at)

    assert (cluster.ready.last_updated_time, cluster.ready.last_transition_time) == (minute(3), minute(1))


def test_ready_ends_at_the_time_of_the_failing_report(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", FALSE, at=30)

    assert ready_cluster.ready.status is FALSE
    assert (ready_cluster.ready.last_updated_time, ready_cluster.ready.last_transition_time) == (
        minute(2),
        minute(30),
    )
    assert ready_cluster.status.last_transition_time == minute(30)
    assert ready_cluster.waiting == {"dns": minute(30)}


def test_a_report_by_a_slow_clock_moves_no_transition_time_back() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)
    cluster.report("validation", TRUE, at=8)

    cluster.report("dns", FALSE, at=5)

    assert (cluster.ready.status, cluster.ready.last_transition_time) == (FALSE, minute(8))
    assert (cluster.available.status, cluster.available.last_transition_time) == (FALSE, minute(8))
    assert cluster.available.last_updated_time == minute(5)


def test_a_newly_required_adapter_turns_both_conditions_at_once() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)

    cluster.require("dns", "validation", at=9)

    for condition in cluster.status.conditions[:2]:
        assert (condition.status, condition.last_transition_time) == (FALSE, minute(9))
    assert cluster.waiting == {"validation": minute(9)}


def test_ready_ends_with_a_new_spec_at_the_time_of_the_change() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)
    cluster.patch(at=5)
    cluster.patch(at=6)

    cluster.report("dns", FALSE, at=7)

    assert (cluster.ready.last_updated_time, cluster.ready.last_transition_time) == (minute(7), minute(5))


def test_the_first_aggregation_uses_the_times_of_the_reports() -> None:
    inputs = aggregate.AggregationInput(
        generation=1,
        updated_time=minute(0),
        required=["dns"],
        statuses=[reports.apply(report_of(available=FALSE, at=1), None)],
    )

    status = aggregate.aggregate(inputs, previous=None, at=minute(1))

    for condition in status.conditions[:2]:
        assert condition.created_time == minute(0)
        assert condition.last_updated_time == condition.last_transition_time == minute(1)


# Available


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 1)])
def test_available_becomes_true_at_the_time_of_the_last_missing_report(first: int, last: int) -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", TRUE, at=first)
    cluster.report("validation", TRUE, at=last)

    assert cluster.available.last_updated_time == minute(1)
    assert cluster.available.last_transition_time == minute(last)


def test_available_follows_its_oldest_report(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", TRUE, at=30)

    assert ready_cluster.available.last_updated_time == minute(2)
    assert ready_cluster.available.last_transition_time == minute(2)


def test_available_keeps_its_times_while_it_stays_true(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)

    ready_cluster.report("dns", TRUE, at=4)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (TRUE, 1)
    assert ready_cluster.available.last_updated_time == minute(1)
    assert ready_cluster.available.last_transition_time == minute(2)
    assert (
        ready_cluster.available.message
        == "Last known to be available at generation 1. Now reporting another: [dns]"
    )


def test_available_ends_at_the_time_of_the_failing_report(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", FALSE, at=5)

    assert ready_cluster.available.last_updated_time == ready_cluster.available.last_transition_time == minute(5)


def test_a_late_failure_at_its_generation_ends_available(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)
    ready_cluster.report("validation", TRUE, at=4)

    ready_cluster.report("dns", FALSE, at=5, generation=1)

    assert (ready_cluster.available.status, ready_cluster.available.observed_generation) == (FALSE, 2)
    assert ready_cluster.available.last_updated_time == ready_cluster.available.last_transition_time == minute(5)


def test_available_keeps_the_time_of_its_end_with_that_report(ready_cluster: OneResource) -> None:
    ready_cluster.patch(at=3)
    ready_cluster.report("validation", FALSE, at=8)
    ready_cluster.report("dns", FALSE, at=4, generation=1)
    ended = ready_cluster.available

    ready_cluster.refresh(at=minute(10))
    again = ready_cluster.available
    ready_cluster.report("dns", FALSE, at=9)

    assert ended.last_updated_time == ended.last_transition_time == minute(4)
    assert again == ended
    assert ready_cluster.available.last_updated_time == minute(8)
    assert ready_cluster.available.last_transition_time == minute(4)


def test_unavailable_has_the_time_of_the_oldest_report() -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", TRUE, at=1)
    before = cluster.available.last_updated_time
    cluster.report("validation", FALSE, at=2)

    assert (before, cluster.available.last_updated_time) == (minute(0), minute(1))
    assert cluster.available.last_transition_time == minute(0)


def test_unavailable_keeps_its_time_without_a_newest_failure() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", FALSE, at=1)
    cluster.report("validation", TRUE, at=2)
    cluster.patch(at=3)

    cluster.report("validation", TRUE, at=4)

    assert (cluster.available.status, cluster.available.observed_generation) == (FALSE, 2)
    assert cluster.available.last_updated_time == minute(1)


def test_a_newly_required_adapter_makes_both_conditions_false() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)

    cluster.require("dns", "validation")
    missed = cluster.status
    cluster.report("validation", TRUE, at=2)

    assert missed.phase is Phase.NOT_READY
    assert [each.status for each in missed.conditions[:2]] == [FALSE, FALSE]
    assert missed.observed_generation == 0
    assert cluster.ready.is_true
    assert cluster.available.is_true


def test_several_failures_at_once_count_from_the_first() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)
    cluster.report("billing", FALSE, at=5)
    cluster.report("quota", FALSE, at=3)

    cluster.require("dns", "billing", "quota")

    assert cluster.available.last_updated_time == cluster.available.last_transition_time == minute(3)


def test_available_ends_when_no_adapter_is_required_any_more() -> None:
    cluster = OneResource("dns")
    cluster.patch(at=1)
    cluster.report("dns", TRUE, at=2)

    cluster.require()

    assert (cluster.available.status, cluster.available.observed_generation) == (FALSE, 2)
    assert cluster.available.last_updated_time == minute(2)


# Reasons and messages


def test_ready_names_missing_and_reporting_adapters() -> None:
    cluster = OneResource("validation", "provision", "dns")

    cluster.report("validation", TRUE, at=1)

    assert cluster.ready.reason == "ReconciledMissingAdapters"
    assert cluster.ready.message == (
        "Required adapters not reporting Available=True: [dns, provision]. Currently reporting: [validation]"
    )
    assert cluster.available.reason == "AdaptersMissingReports"
    assert cluster.available.message == (
        "Required adapters that have not reported: [dns, provision]. Currently reporting: [validation]"
    )


def test_available_names_failing_adapters() -> None:
    cluster = OneResource("validation", "dns")
    cluster.report("validation", FALSE, at=1)

    cluster.report("dns", TRUE, at=2)

    assert cluster.available.reason == "AdapterReportedNotAvailable"
    assert cluster.available.message == "Required adapters reporting Available=False: [validation]"
    assert cluster.ready.message.endswith("Available=True: [validation]. Currently reporting: [dns, validation]")


def test_available_names_the_generation_of_each_adapter() -> None:
    cluster = OneResource("validation", "dns")
    cluster.report("validation", TRUE, at=1)
    cluster.patch(at=2)

    cluster.report("dns", TRUE, at=3)

    assert cluster.available.reason == "AdaptersNotAtSameGeneration"
    assert cluster.available.message.endswith("at different generations: [dns=2, validation=1]")


def test_true_conditions_name_their_generation() -> None:
    cluster = OneResource("dns")

    cluster.report("dns", TRUE, at=1)

    assert (cluster.ready.reason, cluster.available.reason) == ("ReconciledAll", "AllAdaptersReconciled")
    assert cluster.ready.message == "All required adapters report Available=True at generation 1"


# Mirrored conditions and public names


def test_reporting_required_adapters_are_mirrored_sorted_by_name() -> None:
    cluster = OneResource("validation", "my-adapter", "dns", "quota")
    cluster.report("validation", FALSE, at=1, reason="NoQuota", message="3 more cores needed")
    cluster.report("my-adapter", TRUE, at=2)
    cluster.report("dns", UNKNOWN, at=3)
    cluster.report("billing", TRUE, at=4)

    cluster.patch(at=5)

    assert [each.type for each in cluster.status.conditions[2:]] == ["MyAdapterSuccessful", "ValidationSuccessful"]
    mirrored = cluster.condition("ValidationSuccessful")
    assert (mirrored.status, mirrored.observed_generation) == (FALSE, 1)
    assert (mirrored.reason, mirrored.message) == ("NoQuota", "3 more cores needed")


def test_a_mirrored_condition_has_the_times_of_its_original() -> None:
    cluster = OneResource("dns")
    for at, available in ((1, UNKNOWN), (2, FALSE), (3, TRUE), (4, TRUE)):
        cluster.report("dns", available, at=at)

    mirrored = cluster.condition("DnsSuccessful")

    assert mirrored.created_time == minute(1)
    assert mirrored.last_transition_time == minute(3)
    assert mirrored.last_updated_time == minute(4)


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        ("dns", "DnsSuccessful"),
        ("my-adapter", "MyAdapterSuccessful"),
        ("gcp.dns_zone", "GcpDnsZoneSuccessful"),
        ("pullSecret", "PullSecretSuccessful"),
        ("a--b", "ABSuccessful"),
        ("2nd", "2ndSuccessful"),
    ],
)
def test_a_mirrored_condition_is_named_after_its_adapter(adapter: str, name: str) -> None:
    assert aggregate.condition_type(adapter) == name


def test_conditions_with_public_names_are_copies_that_come_next() -> None:
    cluster = OneResource("dns", public_names=True)
    cluster.report("dns", TRUE, at=1)
    cluster.patch(at=2)

    assert [each.type for each in cluster.status.conditions] == [
        "Ready",
        "Available",
        "Reconciled",
        "LastKnownReconciled",
        "DnsSuccessful",
    ]
    for name, public in (("Ready", "Reconciled"), ("Available", "LastKnownReconciled")):
        copy = msgspec.structs.replace(cluster.condition(public), type=name)
        assert copy == cluster.condition(name)


# Deletion


def test_a_deletion_makes_ready_false_at_its_time() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)

    cluster.delete(at=2)

    assert (cluster.ready.status, cluster.ready.observed_generation) == (FALSE, 2)
    assert cluster.ready.last_transition_time == minute(2)
    assert cluster.ready.reason == "ReconciledMissingAdapters"
    assert cluster.ready.message == (
        "Required adapters not reporting Finalized=True: [dns]. Currently reporting: [dns]"
    )
    assert not aggregate.is_finalized(cluster.situation)


def test_it_is_finalized_when_every_adapter_finalized_its_generation() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("validation", FALSE, at=1, is_finalized=True)
    cluster.delete(at=2)
    cluster.report("dns", FALSE, at=3, is_finalized=True)
    at_an_older_generation = aggregate.is_finalized(cluster.situation)

    cluster.report("validation", FALSE, at=4, is_finalized=True)

    assert not at_an_older_generation
    assert aggregate.is_finalized(cluster.situation)
    assert cluster.ready.is_true
    assert cluster.ready.message == "All required adapters report Finalized=True at generation 2"


def test_available_at_the_last_generation_does_not_finalize() -> None:
    cluster = OneResource("dns")
    cluster.delete(at=1)

    cluster.report("dns", TRUE, at=2)

    assert cluster.ready.status is FALSE
    assert not aggregate.is_finalized(cluster.situation)


def test_a_resource_waits_for_its_last_child() -> None:
    cluster = OneResource("dns")
    cluster.delete(at=1, children=2)
    cluster.report("dns", FALSE, at=2, is_finalized=True)
    waiting = cluster.ready
    is_finalized = aggregate.is_finalized(cluster.situation)

    cluster.children = 0
    cluster.refresh(at=minute(3))

    assert (waiting.status, waiting.reason) == (FALSE, "ReconciledWaitingForChildren")
    assert waiting.message == "Children not deleted yet: 2"
    assert not is_finalized
    assert aggregate.is_finalized(cluster.situation)
    assert cluster.ready.is_true


def test_without_required_adapters_a_deletion_waits_for_children() -> None:
    cluster = OneResource()

    cluster.delete(at=1, children=1)
    before = aggregate.is_finalized(cluster.situation)
    reason = cluster.ready.reason
    cluster.children = 0

    assert not before
    assert reason == "ReconciledWaitingForChildren"
    assert aggregate.is_finalized(cluster.situation)


def test_children_do_not_matter_to_a_live_resource() -> None:
    cluster = OneResource("dns")
    cluster.children = 3

    cluster.report("dns", TRUE, at=1)

    assert cluster.ready.is_true


def test_a_live_resource_is_never_finalized() -> None:
    cluster = OneResource("dns")

    cluster.report("dns", TRUE, at=1, is_finalized=True)

    assert not aggregate.is_finalized(cluster.situation)
    assert not aggregate.is_finalized(OneResource().situation)


# Blocking adapters


def test_a_new_resource_waits_for_every_adapter_since_creation() -> None:
    cluster = OneResource("dns", "validation")

    assert cluster.waiting == {"dns": minute(0), "validation": minute(0)}


def test_an_available_adapter_is_not_waited_for() -> None:
    cluster = OneResource("dns", "validation")

    cluster.report("dns", TRUE, at=1)
    one = cluster.waiting
    cluster.report("validation", TRUE, at=2)

    assert one == {"validation": minute(0)}
    assert cluster.waiting == {}


def test_a_failing_adapter_is_waited_for_since_its_failure(ready_cluster: OneResource) -> None:
    ready_cluster.report("dns", FALSE, at=30)
    ready_cluster.report("dns", FALSE, at=31, reason="StillBroken")

    assert ready_cluster.waiting == {"dns": minute(30)}


def test_a_wait_since_a_new_spec_continues_after_a_failure() -> None:
    cluster = OneResource("dns")
    cluster.report("dns", TRUE, at=1)
    cluster.patch(at=10)

    cluster.report("dns", FALSE, at=40)

    assert cluster.waiting == {"dns": minute(10)}


def test_a_new_spec_does_not_restart_a_wait() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("validation", TRUE, at=1)

    cluster.patch(at=10)

    assert cluster.waiting == {"dns": minute(0), "validation": minute(10)}


def test_a_newly_required_adapter_is_waited_for_from_now() -> None:
    cluster = OneResource("dns")
    for at in (1, 600):
        cluster.report("dns", TRUE, at=at)

    cluster.require("dns", "validation", at=700)

    assert cluster.waiting == {"validation": minute(700)}


def test_a_deletion_restarts_the_wait_for_every_adapter() -> None:
    cluster = OneResource("dns", "validation")
    cluster.report("dns", TRUE, at=1)

    cluster.delete(at=10)
    at_first = cluster.waiting
    cluster.report("dns", FALSE, at=11, is_finalized=True)

    assert at_first == {"dns": minute(10), "validation": minute(10)}
    assert cluster.waiting == {"validation": minute(10)}

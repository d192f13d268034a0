"""Properties of conditions after any history of reports, changes and deletions."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st
from msgspec import UNSET

from sentinel.core.fleet import aggregate, reports
from sentinel.core.fleet.documents import Condition, Phase, Report, ResourceStatus
from tests.support.fleet.histories import ADAPTERS, Deleted, Patched, Reported, Step, any_steps, changes, minutes
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of

orders = st.permutations(range(len(ADAPTERS)))


def replay(steps: Sequence[Step]) -> Iterator[tuple[OneResource, ResourceStatus, Step]]:
    """Yield the resource after each step, its status before, and the step."""
    resource = OneResource(*ADAPTERS)
    for step in steps:
        before = resource.status
        step(resource)
        yield resource, before, step


def times(conditions: Sequence[Condition]) -> set[datetime]:
    return {
        time
        for each in conditions
        for time in (each.created_time, each.last_updated_time, each.last_transition_time)
    }


FAILED_LATE = [
    *(Reported(adapter, TRUE, 1, 0, False) for adapter in ADAPTERS),
    Patched(3),
    Reported("quota", FALSE, 8, 0, False),
    Reported("dns", FALSE, 4, 1, False),
]


FAILED_BY_A_SLOW_CLOCK = [
    *(Reported(adapter, TRUE, 1, 0, False) for adapter in ("dns", "quota")),
    Reported("validation", TRUE, 8, 0, False),
    Patched(9),
    Reported("quota", FALSE, 10, 0, False),
    Reported("dns", FALSE, 5, 1, False),
]


def test_the_histories_make_both_conditions_true_and_false_again() -> None:
    """Otherwise the properties below would hold for nothing."""
    turns: Counter[tuple[str, bool]] = Counter()
    backwards = 0

    @seed(1)
    @settings(max_examples=200, database=None)
    @given(changes)
    def count(steps: list[Step]) -> None:
        nonlocal backwards
        for resource, before, step in replay(steps):
            for old in before.conditions[:2]:
                new = resource.condition(old.type)
                if new.status is not old.status:
                    turns[new.type, new.is_true] += 1
                    backwards += minute(step.at) < old.last_transition_time

    count()

    assert min(turns[each] for each in itertools.product(("Ready", "Available"), (True, False))) >= 50
    assert backwards >= 20


@given(any_steps, minutes)
@example(FAILED_LATE, 20)
@example(FAILED_BY_A_SLOW_CLOCK, 20)
def test_aggregating_again_changes_nothing(steps: list[Step], at: int) -> None:
    for resource, _, _ in replay(steps):
        status, waiting = resource.status, resource.waiting

        resource.refresh(at=minute(at))

        assert resource.status == status
        assert resource.waiting == waiting


@given(any_steps)
def test_every_time_comes_from_the_inputs(steps: list[Step]) -> None:
    inputs = {minute(0)}
    for resource, _, step in replay(steps):
        inputs.update((resource.updated_time, minute(step.at)))
        inputs.update(status.last_report_time for status in resource.statuses.values())

        assert times(resource.status.conditions) <= inputs
        assert {resource.status.last_updated_time, resource.status.last_transition_time} <= inputs
        assert {resource.status.last_progress_time} <= inputs | {UNSET}
        assert set(resource.waiting.values()) <= inputs


@given(any_steps)
def test_a_transition_time_changes_only_with_the_status(steps: list[Step]) -> None:
    for resource, before, _ in replay(steps):
        for old in before.conditions[:2]:
            new = resource.condition(old.type)
            if new.status is old.status:
                assert new.last_transition_time == old.last_transition_time
            assert new.last_transition_time >= old.last_transition_time
            assert new.created_time == old.created_time


@given(changes)
def test_a_transition_has_the_time_of_what_turned_the_condition(steps: list[Step]) -> None:
    for resource, before, step in replay(steps):
        for old in before.conditions[:2]:
            new = resource.condition(old.type)
            if new.status is not old.status:
                assert new.last_transition_time == max(minute(step.at), old.last_transition_time)


@given(any_steps)
def test_the_flat_fields_match_ready(steps: list[Step]) -> None:
    for resource, _, _ in replay(steps):
        status, ready = resource.status, resource.ready

        assert (status.phase is Phase.READY) is ready.is_true
        assert status.last_updated_time == ready.last_updated_time
        assert status.last_transition_time == ready.last_transition_time
        assert ready.observed_generation == resource.generation
        assert 0 <= status.observed_generation <= resource.generation


@given(any_steps)
def test_a_ready_resource_is_available_at_its_generation(steps: list[Step]) -> None:
    for resource, _, _ in replay(steps):
        if resource.ready.is_true and not resource.is_deleting:
            assert resource.available.is_true
            assert resource.available.observed_generation == resource.generation
            assert resource.status.observed_generation == resource.generation


@given(any_steps)
def test_adapters_are_waited_for_only_while_not_ready(steps: list[Step]) -> None:
    for resource, _, _ in replay(steps):
        assert set(resource.waiting) <= set(resource.required)
        if resource.ready.is_true:
            assert resource.waiting == {}
        else:
            assert resource.waiting or not resource.required or resource.children


@given(any_steps)
def test_a_deleted_resource_is_finalized_once_it_is_ready(
    steps: list[Step],
) -> None:
    for resource, _, _ in replay(steps):
        is_released = resource.ready.is_true or (not resource.required and not resource.children)

        assert aggregate.is_finalized(resource.situation) is (resource.is_deleting and is_released)


@given(changes)
def test_available_ends_only_with_a_failure_at_its_generation(steps: list[Step]) -> None:
    for resource, before, step in replay(steps):
        old = before.condition("Available")
        assert old is not None
        if old.is_true and not resource.available.is_true:
            assert isinstance(step, Reported)
            failure = resource.statuses[step.adapter]
            assert failure.status_of("Available") is FALSE
            assert failure.observed_generation == old.observed_generation
            assert resource.available.last_updated_time == failure.last_report_time
            assert resource.available.last_transition_time == max(
                failure.last_report_time, old.last_transition_time
            )


@given(changes)
def test_available_begins_only_when_all_are_at_one_generation(steps: list[Step]) -> None:
    for resource, before, _ in replay(steps):
        old = before.condition("Available")
        assert old is not None
        if resource.available.is_true and (
            not old.is_true or resource.available.observed_generation != old.observed_generation
        ):
            statuses = [resource.statuses[adapter] for adapter in ADAPTERS]
            assert {each.observed_generation for each in statuses} == {resource.available.observed_generation}
            assert {each.status_of("Available") for each in statuses} == {TRUE}


@given(changes)
def test_an_unknown_never_changes_the_status(steps: list[Step]) -> None:
    for resource, before, step in replay(steps):
        if isinstance(step, Reported) and step.available is UNKNOWN:
            assert resource.status == before
            # Not even when something else is the cause to aggregate.
            assert resource.refresh(at=minute(20)) == before


@given(any_steps)
def test_public_names_change_nothing_else(steps: list[Step]) -> None:
    for resource, before, step in replay(steps):
        at = minute(step.at)
        public = aggregate.aggregate(resource.situation, previous=before, at=at, public_names=True)
        plain = aggregate.aggregate(resource.situation, previous=before, at=at)

        assert [*public.conditions[:2], *public.conditions[4:]] == list(plain.conditions)
        assert msgspec.structs.replace(public, conditions=()) == msgspec.structs.replace(plain, conditions=())


@st.composite
def report_sets(draw: st.DrawFn, *, is_finalized: bool = False) -> tuple[Report, ...]:
    """Draw one report of each required adapter, later than all before."""
    return tuple(
        report_of(
            adapter,
            FALSE if is_finalized else draw(st.sampled_from((TRUE, FALSE))),
            at=draw(st.integers(100, 110)),
            is_finalized=is_finalized and draw(st.booleans()),
        )
        for adapter in ADAPTERS
    )


def after(resource: OneResource, all_reports: Sequence[Report]) -> OneResource:
    other = copy.copy(resource)
    other.statuses = dict(resource.statuses)
    for report in all_reports:
        verdict = other.send(msgspec.structs.replace(report, observed_generation=other.generation))
        assert isinstance(verdict, reports.Accepted)
    return other


def in_two_orders(
    resource: OneResource, all_reports: tuple[Report, ...], order: list[int]
) -> tuple[OneResource, OneResource]:
    return after(resource, all_reports), after(resource, [all_reports[index] for index in order])


def without_transitions(status: ResourceStatus) -> ResourceStatus:
    """The report that turns a condition, and so the time of its transition, depends on the order of reports."""
    return msgspec.structs.replace(
        status,
        last_transition_time=minute(0),
        conditions=tuple(
            msgspec.structs.replace(each, last_transition_time=minute(0)) for each in status.conditions
        ),
    )


def final_resource(steps: Sequence[Step]) -> OneResource:
    resource = OneResource(*ADAPTERS)
    for step in steps:
        step(resource)
    return resource


@given(changes, report_sets(), orders)
def test_after_a_change_the_order_of_reports_does_not_matter(
    steps: list[Step], all_reports: tuple[Report, ...], order: list[int]
) -> None:
    resource = final_resource([*steps, Patched(21)])

    one, other = in_two_orders(resource, all_reports, order)

    assert without_transitions(other.status) == without_transitions(one.status)


@given(changes, report_sets(is_finalized=True), orders)
def test_after_a_deletion_the_order_of_reports_does_not_matter(
    steps: list[Step], all_reports: tuple[Report, ...], order: list[int]
) -> None:
    resource = final_resource([*steps, Deleted(21, 0)])

    one, other = in_two_orders(resource, all_reports, order)

    assert without_transitions(other.status) == without_transitions(one.status)
    assert other.waiting == one.waiting


@given(report_sets(), report_sets(), orders)
def test_later_the_order_of_reports_matters_only_for_transitions(
    first: tuple[Report, ...], second: tuple[Report, ...], order: list[int]
) -> None:
    """Within a generation, a resource may pass through another state in one of the orders."""

    def without_update_of_available(status: ResourceStatus) -> ResourceStatus:
        return msgspec.structs.replace(
            without_transitions(status),
            conditions=tuple(
                msgspec.structs.replace(each, last_updated_time=minute(0)) if each.type == "Available" else each
                for each in without_transitions(status).conditions
            ),
        )

    resource = after(
        OneResource(*ADAPTERS), [msgspec.structs.replace(each, observed_time=minute(50)) for each in first]
    )

    one, other = in_two_orders(resource, second, order)

    assert without_update_of_available(other.status) == without_update_of_available(one.status)

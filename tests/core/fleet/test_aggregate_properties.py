"""What holds of conditions after any history of reports, changes and deletions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from sentinel.core.fleet import aggregate, reports
from sentinel.core.fleet.documents import Condition, ConditionStatus, Phase, Report, ResourceStatus
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of

ADAPTERS = ("dns", "quota", "validation")

Step: TypeAlias = Callable[[OneResource], object]


class Reported(msgspec.Struct, frozen=True):
    """A report on the resource's generation, or one that is so much older (or newer, by a mistake)."""

    adapter: str
    available: ConditionStatus
    at: int
    behind: int
    is_finalized: bool

    def __call__(self, resource: OneResource) -> None:
        resource.report(
            self.adapter,
            self.available,
            at=self.at,
            generation=max(1, resource.generation - self.behind),
            is_finalized=self.is_finalized,
        )


class Patched(msgspec.Struct, frozen=True):
    at: int

    def __call__(self, resource: OneResource) -> None:
        if not resource.is_deleting:
            resource.patch(at=self.at)


class Deleted(msgspec.Struct, frozen=True):
    at: int
    children: int

    def __call__(self, resource: OneResource) -> None:
        if not resource.is_deleting:
            resource.delete(at=self.at, children=self.children)


class Required(msgspec.Struct, frozen=True):
    adapters: tuple[str, ...]

    def __call__(self, resource: OneResource) -> None:
        resource.require(*self.adapters)


moments = st.integers(0, 20)
some_adapters = st.lists(st.sampled_from(ADAPTERS), unique=True).map(tuple)
reported = st.builds(
    Reported,
    adapter=st.sampled_from((*ADAPTERS, "billing")),
    available=st.sampled_from((TRUE, TRUE, FALSE, UNKNOWN)),
    at=moments,
    behind=st.sampled_from((0, 0, 0, 1, 2, -1)),
    is_finalized=st.booleans(),
)
patched = st.builds(Patched, at=moments)
deleted = st.builds(Deleted, at=moments, children=st.integers(0, 2))
required = st.builds(Required, some_adapters)


def agreement(at: int, is_finalized: bool) -> list[Step]:
    return [Reported(adapter, TRUE, at, 0, is_finalized) for adapter in ADAPTERS]


def histories(*steps: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """A life of such steps, the likelier the more often they are named, and now and then all adapters of one mind.

    Left to chance they never are, and all that is claimed of a resource that was available once would be claimed
    of nothing. Drawn by `sampled_from`, because `one_of` takes a strategy that it is given twice for one.
    """
    alone = st.sampled_from(steps).flatmap(lambda kind: kind.map(lambda step: [step]))
    agreed = st.builds(agreement, at=st.integers(0, 5), is_finalized=st.booleans())
    groups = st.sampled_from((alone, alone, alone, agreed)).flatmap(lambda kind: kind)
    return st.lists(groups, max_size=15).map(lambda drawn: [step for group in drawn for step in group])


lives = histories(reported, reported, reported, patched)
any_steps = histories(reported, reported, reported, reported, patched, deleted, required)


def live(steps: Sequence[Step]) -> Iterator[tuple[OneResource, ResourceStatus, Step]]:
    """The resource after each step, with its status before and the step itself."""
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


FELLED_LATE = [
    *(Reported(adapter, TRUE, 1, 0, False) for adapter in ADAPTERS),
    Patched(3),
    Reported("quota", FALSE, 8, 0, False),
    Reported("dns", FALSE, 4, 1, False),
]


@given(any_steps)
@example(FELLED_LATE)
def test_to_aggregate_again_changes_nothing(steps: list[Step]) -> None:
    for resource, _, _ in live(steps):
        status, waiting = resource.status, resource.waiting

        resource.refresh()

        assert resource.status == status
        assert resource.waiting == waiting


@given(any_steps)
def test_no_time_appears_that_was_not_brought_along(steps: list[Step]) -> None:
    brought = {minute(0)}
    for resource, _, _ in live(steps):
        brought.add(resource.updated_time)
        brought.update(status.last_report_time for status in resource.statuses.values())

        assert times(resource.status.conditions) <= brought
        assert {resource.status.last_updated_time, resource.status.last_transition_time} <= brought
        assert {resource.status.last_progress_time} <= brought | {UNSET}
        assert set(resource.waiting.values()) <= brought


@given(any_steps)
def test_a_transition_time_is_kept_while_the_status_is_and_set_when_it_changes(steps: list[Step]) -> None:
    for resource, before, _ in live(steps):
        for old in before.conditions[:2]:
            new = resource.condition(old.type)
            if new.status is old.status:
                assert new.last_transition_time == old.last_transition_time
            else:
                assert new.last_transition_time in (new.last_updated_time, resource.updated_time)
            assert new.created_time == old.created_time


@given(any_steps)
def test_the_flat_fields_say_what_ready_says(steps: list[Step]) -> None:
    for resource, _, _ in live(steps):
        status, ready = resource.status, resource.ready

        assert (status.phase is Phase.READY) is ready.is_true
        assert status.last_updated_time == ready.last_updated_time
        assert status.last_transition_time == ready.last_transition_time
        assert ready.observed_generation == resource.generation
        assert 0 <= status.observed_generation <= resource.generation


@given(any_steps)
def test_what_is_ready_is_available_at_its_generation(steps: list[Step]) -> None:
    for resource, _, _ in live(steps):
        if resource.ready.is_true and not resource.is_deleting:
            assert resource.available.is_true
            assert resource.available.observed_generation == resource.generation
            assert resource.status.observed_generation == resource.generation


@given(any_steps)
def test_somebody_is_waited_for_exactly_while_adapters_keep_it_from_being_ready(steps: list[Step]) -> None:
    for resource, _, _ in live(steps):
        assert set(resource.waiting) <= set(resource.required)
        if resource.ready.is_true:
            assert resource.waiting == {}
        else:
            assert resource.waiting or not resource.required or resource.children


@given(any_steps)
def test_a_resource_is_finalized_exactly_when_a_deletion_has_made_it_ready_or_nobody_is_required(
    steps: list[Step],
) -> None:
    for resource, _, _ in live(steps):
        is_let_go = resource.ready.is_true or (not resource.required and not resource.children)

        assert aggregate.is_finalized(resource.situation) is (resource.is_deleting and is_let_go)


@given(lives)
def test_available_falls_only_with_a_failure_at_the_generation_it_was_for(steps: list[Step]) -> None:
    for resource, before, step in live(steps):
        old = before.condition("Available")
        assert old is not None
        if old.is_true and not resource.available.is_true:
            assert isinstance(step, Reported)
            felling = resource.statuses[step.adapter]
            assert felling.status_of("Available") is FALSE
            assert felling.observed_generation == old.observed_generation
            assert resource.available.last_updated_time == felling.last_report_time
            assert resource.available.last_transition_time == felling.last_report_time


@given(lives)
def test_available_rises_only_when_all_are_at_one_generation(steps: list[Step]) -> None:
    for resource, before, _ in live(steps):
        old = before.condition("Available")
        assert old is not None
        if resource.available.is_true and (
            not old.is_true or resource.available.observed_generation != old.observed_generation
        ):
            said = [resource.statuses[adapter] for adapter in ADAPTERS]
            assert {each.observed_generation for each in said} == {resource.available.observed_generation}
            assert {each.status_of("Available") for each in said} == {TRUE}


@given(lives)
def test_an_unknown_never_changes_the_status(steps: list[Step]) -> None:
    for resource, before, step in live(steps):
        if isinstance(step, Reported) and step.available is UNKNOWN:
            assert resource.status == before


@given(any_steps)
def test_public_names_change_nothing_else(steps: list[Step]) -> None:
    for resource, before, _ in live(steps):
        public = aggregate.aggregate(resource.situation, previous=before, public_names=True)
        plain = aggregate.aggregate(resource.situation, previous=before)

        assert [*public.conditions[:2], *public.conditions[4:]] == list(plain.conditions)
        assert msgspec.structs.replace(public, conditions=()) == msgspec.structs.replace(plain, conditions=())


@st.composite
def answers(draw: st.DrawFn, *, is_finalized: bool = False) -> tuple[Report, ...]:
    """One answer of each required adapter, later than anything before."""
    return tuple(
        report_of(
            adapter,
            FALSE if is_finalized else draw(st.sampled_from((TRUE, FALSE))),
            at=draw(st.integers(100, 110)),
            is_finalized=is_finalized and draw(st.booleans()),
        )
        for adapter in ADAPTERS
    )


def after(resource: OneResource, all_answers: Sequence[Report]) -> OneResource:
    other = copy.copy(resource)
    other.statuses = dict(resource.statuses)
    for answer in all_answers:
        verdict = other.send(msgspec.structs.replace(answer, observed_generation=other.generation))
        assert isinstance(verdict, reports.Accepted)
    return other


@given(lives, answers(), st.permutations(range(len(ADAPTERS))))
def test_after_a_change_the_order_in_which_adapters_answer_it_is_irrelevant_to_the_last_time(
    steps: list[Step], all_answers: tuple[Report, ...], order: list[int]
) -> None:
    resource = OneResource(*ADAPTERS)
    for step in steps:
        step(resource)
    resource.patch(at=21)

    one = after(resource, all_answers)
    other = after(resource, [all_answers[index] for index in order])

    assert other.status == one.status


@given(lives, answers(is_finalized=True), st.permutations(range(len(ADAPTERS))))
def test_after_a_deletion_the_order_in_which_adapters_finalize_is_irrelevant_to_the_last_time(
    steps: list[Step], all_answers: tuple[Report, ...], order: list[int]
) -> None:
    resource = OneResource(*ADAPTERS)
    for step in steps:
        step(resource)
    resource.delete(at=21)

    one = after(resource, all_answers)
    other = after(resource, [all_answers[index] for index in order])

    assert other.status == one.status
    assert other.waiting == one.waiting


@given(answers(), answers(), st.permutations(range(len(ADAPTERS))))
def test_in_a_later_round_the_order_is_irrelevant_to_all_but_the_moments_of_transitions(
    first: tuple[Report, ...], second: tuple[Report, ...], order: list[int]
) -> None:
    """Within a generation a resource may pass through another state in one order and not in the other."""

    def without_transitions(status: ResourceStatus) -> ResourceStatus:
        return msgspec.structs.replace(
            status,
            last_transition_time=minute(0),
            conditions=tuple(
                msgspec.structs.replace(
                    each,
                    last_transition_time=minute(0),
                    last_updated_time=minute(0) if each.type == "Available" else each.last_updated_time,
                )
                for each in status.conditions
            ),
        )

    resource = after(
        OneResource(*ADAPTERS), [msgspec.structs.replace(each, observed_time=minute(50)) for each in first]
    )

    one = after(resource, second)
    other = after(resource, [second[index] for index in order])

    assert without_transitions(other.status) == without_transitions(one.status)

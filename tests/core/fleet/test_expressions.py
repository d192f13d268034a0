"""Conditions by expression: what an expression gets, what its value means, and what stays as without one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from sentinel.core.fleet import aggregate
from sentinel.core.fleet.documents import AdapterStatus, ConditionStatus, Phase
from sentinel.core.fleet.expressions import (
    ConditionExpressions,
    EvaluationFailure,
    Expression,
    ExpressionInput,
    as_of,
)
from tests.support.fleet.histories import ADAPTERS, Step, any_steps
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of, unworded

DATA_BAD = msgspec.Raw(b'{"ok":false}')


def is_available(status: AdapterStatus) -> bool:
    return status.status_of("Available") is TRUE


def any_two(given: ExpressionInput) -> bool:
    return sum(is_available(each) for each in given.items) >= 2


def two_at_one_generation(given: ExpressionInput) -> bool:
    return any(
        sum(is_available(each) and each.observed_generation == generation for each in given.items) >= 2
        for generation in {each.observed_generation for each in given.items}
    )


def at_generation(given: ExpressionInput) -> bool:
    return all(is_available(each) and each.observed_generation == given.generation for each in given.items)


def data_ok(given: ExpressionInput) -> bool:
    return all(each.data != DATA_BAD for each in given.items)


def fails(given: ExpressionInput) -> EvaluationFailure:
    return EvaluationFailure("divide by zero")


def always(given: ExpressionInput) -> bool:
    return True


def never(given: ExpressionInput) -> bool:
    return False


def ready_if_available(given: ExpressionInput) -> bool:
    return given.is_available


def cluster(available: Expression | None = None, ready: Expression | None = None) -> OneResource:
    return OneResource("a", "b", "c", expressions=ConditionExpressions(available, ready))


def report_all(resource: OneResource, a: ConditionStatus, b: ConditionStatus, c: ConditionStatus) -> None:
    for at, (adapter, status) in enumerate((("a", a), ("b", b), ("c", c)), start=1):
        resource.report(adapter, status, at=at)


def send_bad_data(resource: OneResource, adapter: str, *, at: int) -> None:
    report = report_of(adapter, TRUE, at=at, generation=resource.generation)
    resource.send(msgspec.structs.replace(report, data=DATA_BAD))


# What an expression gets


def test_an_expression_gets_the_reports_of_required_adapters() -> None:
    seen: list[ExpressionInput] = []

    def record(given: ExpressionInput) -> bool:
        seen.append(given)
        return True

    resource = cluster(record, record)
    resource.report("other", TRUE, at=1)
    resource.report("c", TRUE, at=2)
    resource.report("a", TRUE, at=3)
    assert not seen

    resource.patch(at=4)
    resource.report("b", FALSE, at=5)

    available, ready = seen
    assert list(available.items) == [resource.statuses[name] for name in ("a", "b", "c")]
    assert available.generation == 2
    assert not available.is_available
    assert ready == msgspec.structs.replace(available, is_available=True)


@pytest.mark.parametrize("missing", [None, UNKNOWN])
def test_no_expression_decides_before_all_have_reported(missing: ConditionStatus | None) -> None:
    resource = cluster(always, always)
    resource.report("a", TRUE, at=1)
    resource.report("b", TRUE, at=2)
    if missing is not None:
        resource.report("c", missing, at=3)

    assert (resource.available.status, resource.ready.status) == (FALSE, FALSE)
    assert resource.available.reason == "AdaptersMissingReports"
    assert resource.ready.reason == "ReconciledMissingAdapters"


def test_no_expression_decides_without_required_adapters() -> None:
    resource = OneResource(expressions=ConditionExpressions(always, always))

    assert (resource.available.status, resource.ready.status) == (FALSE, FALSE)
    assert resource.available.reason == resource.ready.reason == "NoRequiredAdapters"


def test_available_in_ready_is_the_rule_without_stickiness() -> None:
    resource = cluster(ready=ready_if_available)
    report_all(resource, TRUE, TRUE, TRUE)
    resource.patch(at=4)
    for at, adapter in enumerate(("a", "b", "c"), start=5):
        resource.report(adapter, FALSE, at=at)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)
    assert resource.ready.status is FALSE


def test_a_failed_available_is_false_for_ready() -> None:
    resource = cluster(fails, ready_if_available)

    report_all(resource, TRUE, TRUE, TRUE)

    assert resource.ready.status is FALSE
    assert resource.ready.reason == "ExpressionFalse"


# What its value means


def test_available_can_do_without_an_adapter() -> None:
    resource = cluster(any_two)

    report_all(resource, TRUE, FALSE, TRUE)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)
    assert resource.available.reason == "ExpressionTrue"
    assert resource.available.message == (
        "The expression of the kind is true. Required adapters reporting Available=False: [b]"
    )
    assert resource.available.last_updated_time == minute(1)


def test_the_rule_without_an_expression_is_the_built_in_one() -> None:
    available, ready = cluster(any_two), cluster(ready=always)

    report_all(available, TRUE, FALSE, TRUE)
    report_all(ready, TRUE, FALSE, TRUE)

    assert (available.available.status, available.ready.status) == (TRUE, FALSE)
    assert (ready.available.status, ready.ready.status) == (FALSE, TRUE)
    assert available.ready.reason == "ReconciledMissingAdapters"
    assert ready.available.reason == "AdapterReportedNotAvailable"


def test_available_of_several_generations_is_at_the_lowest() -> None:
    resource = cluster(any_two)
    report_all(resource, TRUE, TRUE, FALSE)
    resource.patch(at=4)

    resource.report("a", TRUE, at=5)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)
    assert resource.available.last_updated_time == minute(2)


def test_an_expression_that_agrees_has_the_built_in_message() -> None:
    resource, built_in = cluster(always, always), cluster()

    report_all(resource, TRUE, TRUE, TRUE)
    report_all(built_in, TRUE, TRUE, TRUE)

    assert resource.status == built_in.status


@pytest.mark.parametrize(
    ("b", "facts"), [(TRUE, ""), (FALSE, ". Required adapters reporting Available=False: [b]")]
)
def test_a_false_expression_says_so_and_names_the_adapters(b: ConditionStatus, facts: str) -> None:
    resource = cluster(never, never)

    report_all(resource, TRUE, b, TRUE)

    assert (resource.available.status, resource.available.reason) == (FALSE, "ExpressionFalse")
    assert resource.available.message == f"The expression of the kind is false{facts}"
    assert (resource.ready.status, resource.ready.reason) == (FALSE, "ExpressionFalse")
    assert ("[b]" in resource.ready.message) is bool(facts)


def test_an_expression_that_fails_is_false_with_the_reason() -> None:
    resource = cluster(fails, fails)

    report_all(resource, TRUE, TRUE, TRUE)

    for condition in (resource.available, resource.ready):
        assert (condition.status, condition.reason) == (FALSE, "ExpressionFailed")
        assert condition.message == "The expression of the kind cannot be evaluated: divide by zero"


def test_a_resource_that_is_ready_by_expression_waits_for_nobody() -> None:
    resource = cluster(ready=any_two)

    report_all(resource, TRUE, TRUE, FALSE)

    assert resource.status.phase is Phase.READY
    assert resource.ready.reason == "ExpressionTrue"
    assert "[c]" in resource.ready.message
    assert resource.waiting == {}


def test_ready_of_a_deleted_resource_is_not_up_to_the_expression() -> None:
    resource = cluster(always, always)
    report_all(resource, TRUE, TRUE, TRUE)

    resource.delete(at=4)

    assert resource.ready.status is FALSE
    assert set(resource.waiting) == {"a", "b", "c"}
    assert not aggregate.is_finalized(resource.situation)


# Stickiness and times


def test_a_tolerated_failure_does_not_end_available_later() -> None:
    resource = cluster(two_at_one_generation)
    report_all(resource, TRUE, TRUE, FALSE)
    resource.patch(at=4)

    resource.report("a", TRUE, at=5)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)
    assert resource.available.reason == "ExpressionTrue"
    assert resource.available.message == ("Last known to be available at generation 1. Now reporting another: [a]")


def test_a_failure_at_the_tracked_generation_ends_available() -> None:
    resource = cluster(two_at_one_generation)
    report_all(resource, TRUE, TRUE, FALSE)
    resource.patch(at=4)
    resource.report("a", TRUE, at=5)

    resource.report("b", FALSE, at=6, generation=1)

    assert resource.available.status is FALSE
    assert resource.available.observed_generation == 2


def test_failures_at_another_generation_do_not_end_available() -> None:
    resource = cluster(two_at_one_generation)
    report_all(resource, TRUE, TRUE, FALSE)
    resource.patch(at=4)

    resource.report("a", FALSE, at=5)
    resource.report("b", FALSE, at=6)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)


def test_a_new_spec_does_not_end_available_by_its_generation() -> None:
    resource = cluster(at_generation)
    report_all(resource, TRUE, TRUE, TRUE)

    resource.patch(at=4)

    assert (resource.available.status, resource.available.observed_generation) == (TRUE, 1)
    assert resource.available.message == "Last known to be available at generation 1"


@pytest.mark.parametrize("is_patched", [False, True])
def test_data_can_end_available_at_the_time_of_the_report(is_patched: bool) -> None:
    resource = cluster(data_ok)
    report_all(resource, TRUE, TRUE, TRUE)
    if is_patched:
        resource.patch(at=4)

    send_bad_data(resource, "b", at=7)

    assert resource.available.status is FALSE
    assert resource.available.last_updated_time == resource.available.last_transition_time == minute(7)


def test_a_report_counts_as_available_at_a_generation_it_has_left() -> None:
    resource = cluster()
    resource.report("a", FALSE, at=1)
    status = resource.statuses["a"]

    assert as_of(status, 1) is status
    later = as_of(status, 2)
    assert later.observed_generation == 2
    assert [(each.type, each.status) for each in later.conditions] == [
        ("Applied", TRUE),
        ("Available", TRUE),
        ("Health", TRUE),
    ]
    assert later.last_report_time == status.last_report_time


@pytest.mark.parametrize("available", [any_two, two_at_one_generation, at_generation])
@given(any_steps)
def test_aggregating_again_by_expression_changes_nothing(available: Expression, steps: list[Step]) -> None:
    resource = OneResource(*ADAPTERS, expressions=ConditionExpressions(available, ready_if_available))
    for step in steps:
        step(resource)
        status, waiting = resource.status, resource.waiting

        resource.refresh(at=minute(20))

        assert (resource.status, resource.waiting) == (status, waiting)
        assert not (resource.ready.is_true and resource.waiting)


@given(any_steps)
def test_the_built_in_rules_as_expressions_give_the_same_conditions(steps: list[Step]) -> None:
    def agree(given: ExpressionInput) -> bool:
        return len({each.observed_generation for each in given.items}) == 1 and all(map(is_available, given.items))

    def ready(given: ExpressionInput) -> bool:
        return given.is_available and all(each.observed_generation == given.generation for each in given.items)

    built_in = OneResource(*ADAPTERS)
    resource = OneResource(*ADAPTERS, expressions=ConditionExpressions(agree, ready))
    for step in steps:
        step(built_in)
        step(resource)

        assert unworded(resource.status) == unworded(built_in.status)
        assert resource.waiting == built_in.waiting

"""Why a resource is not ready or not deleted yet: which adapter, since when, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from sentinel.core.fleet import lifecycle, why
from sentinel.core.fleet.documents import (
    AdapterCondition,
    AdapterStatus,
    ConditionStatus,
    KindRules,
    WorkInProgress,
)
from sentinel.core.fleet.expressions import ConditionExpressions
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState
from sentinel.core.fleet.why import Wait, Why
from sentinel.core.pulse.decision import Policy
from tests.support.fleet.resource_state import new_resource

T0 = datetime(2025, 1, 1, 12, 0, tzinfo=UTC)
POLICY = Policy(timedelta(seconds=10), timedelta(minutes=30))
REQUIRED = ("dns", "validation")
RULES = AggregationRules(KindRules("clusters", "Cluster", "", REQUIRED))
NEVER_READY = ConditionExpressions(ready=lambda given: False)


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def created(rules: AggregationRules = RULES) -> ResourceState:
    return new_resource(rules, now=T0)


def status(
    adapter: str,
    available: ConditionStatus = ConditionStatus.TRUE,
    *,
    at: float,
    generation: int = 1,
    reason: str = "",
    message: str = "",
    finalized: ConditionStatus | None = None,
) -> AdapterStatus:
    conditions = [AdapterCondition("Available", available, reason, message, after(at), after(at))]
    if finalized is not None:
        conditions.append(AdapterCondition("Finalized", finalized, "Cleaning", "two left", after(at), after(at)))
    return AdapterStatus(adapter, generation, after(at), after(at), tuple(conditions))


def with_statuses(state: ResourceState, *statuses: AdapterStatus, children: int = 0) -> ResourceState:
    for each in statuses:
        state = lifecycle.with_status(state, RULES, each, children=children)
    return state


def explained(state: ResourceState, *, at: float, required: Sequence[str] = REQUIRED, children: int = 0) -> Why:
    return why.explain(
        state.document,
        statuses=state.statuses,
        waiting=state.waiting,
        required=required,
        children=children,
        policy=POLICY,
        now=after(at),
    )


def sentences(found: Why, *, at: float) -> list[str]:
    return list(why.sentences(found, now=after(at), duration=lambda span: f"{span.total_seconds():g}s"))


def test_a_new_resource_waits_for_every_adapter() -> None:
    found = explained(created(), at=5)

    assert found.waiting_for == (
        Wait("dns", why.NOT_REPORTED, "it has not reported yet", T0),
        Wait("validation", why.NOT_REPORTED, "it has not reported yet", T0),
    )
    assert sentences(found, at=5) == [
        "Cluster one: not ready for 5s",
        "waiting for dns for 5s: it has not reported yet",
        "waiting for validation for 5s: it has not reported yet",
        "next pulse due now, and every 10s until it is answered: generation changed - new spec to reconcile",
    ]


def test_an_adapter_is_quoted() -> None:
    blocked = status(
        "dns", ConditionStatus.FALSE, at=60, reason="PreconditionsNotMet", message="Waiting for validation"
    )
    state = with_statuses(created(), status("validation", at=63), blocked)

    found = explained(state, at=66)

    assert (found.is_ready, found.next_pulse) == (False, after(70))
    assert sentences(found, at=66.5) == [
        "Cluster one: not ready for 66.5s",
        "waiting for dns for 66.5s: PreconditionsNotMet – Waiting for validation",
        "next pulse in 4s (max age 10s)",
    ]


def test_the_cause_comes_before_those_that_only_wait_for_it() -> None:
    state = with_statuses(
        created(),
        status("dns", ConditionStatus.FALSE, at=1, reason="PreconditionsNotMet", message="Waiting for validation"),
        status("validation", ConditionStatus.FALSE, at=1, reason="SpecRejected", message="no replicas"),
    )

    found = explained(state, at=2)

    assert [wait.adapter for wait in found.waiting_for] == ["validation", "dns"]


def test_an_adapter_without_reason_and_message_is_only_named() -> None:
    state = with_statuses(created(), status("validation", at=1), status("dns", ConditionStatus.FALSE, at=1))

    assert sentences(explained(state, at=2), at=2)[1] == "waiting for dns for 2s"


def test_work_in_progress_is_quoted_too() -> None:
    state = with_statuses(
        created(), status("validation", at=1), status("dns", ConditionStatus.UNKNOWN, at=1, message="still at it")
    )

    (wait,) = explained(state, at=2).waiting_for

    assert (wait.adapter, wait.message) == ("dns", "still at it")


def working(adapter: str, *, on: AdapterStatus, at: float, generation: int = 1) -> AdapterStatus:
    work = WorkInProgress(generation, after(at), "InProgress", "zone is being created")
    assert on.adapter == adapter
    return msgspec.structs.replace(on, in_progress=work)


def test_work_in_progress_replaces_an_old_precondition() -> None:
    waited = status("dns", ConditionStatus.FALSE, at=1, reason="PreconditionsNotMet", message="Waiting")
    state = with_statuses(created(), waited, status("validation", at=2))
    state = lifecycle.with_work_in_progress(state, working("dns", on=waited, at=3))

    found = explained(state, at=9)

    assert found.waiting_for == (Wait("dns", "InProgress", "zone is being created", T0),)
    assert sentences(found, at=9)[1] == "waiting for dns for 9s: InProgress – zone is being created"


def test_work_in_progress_on_an_older_generation_is_outdated() -> None:
    waited = status("dns", ConditionStatus.FALSE, at=1)
    state = lifecycle.with_work_in_progress(
        with_statuses(created(), waited, status("validation", at=2)), working("dns", on=waited, at=3)
    )
    changed = lifecycle.change(state, RULES, labels={}, spec=msgspec.Raw(b'{"a":1}'), actor="me", now=after(10))
    assert changed is not None

    found = explained(changed, at=12)

    assert [wait.reason for wait in found.waiting_for] == [why.OUTDATED_REPORT] * 2


def test_work_in_progress_of_a_finalizer_is_quoted() -> None:
    done = status("dns", at=1)
    ready = with_statuses(created(), done, status("validation", at=1))
    state = lifecycle.delete(ready, RULES, children=0, actor="me", now=after(10))
    state = lifecycle.with_work_in_progress(state, working("dns", on=done, at=11, generation=2))

    wait, _ = explained(state, at=12).waiting_for

    assert wait == Wait("dns", "InProgress", "zone is being created", after(10))


def test_a_failure_a_second_old_is_not_ready_for_a_second() -> None:
    ready = with_statuses(created(), status("validation", at=1), status("dns", at=2))
    state = with_statuses(ready, status("validation", at=900), status("dns", ConditionStatus.FALSE, at=901))

    found = explained(state, at=902)

    assert sentences(found, at=902)[:2] == ["Cluster one: not ready for 1s", "waiting for dns for 1s"]


def test_a_report_on_an_older_generation_differs_from_none() -> None:
    ready = with_statuses(created(), status("validation", at=1), status("dns", at=1))
    changed = lifecycle.change(ready, RULES, labels={}, spec=msgspec.Raw(b'{"a":1}'), actor="me", now=after(10))
    assert changed is not None
    state = with_statuses(changed, status("validation", at=11, generation=2))

    (wait,) = explained(state, at=12).waiting_for

    assert (wait.adapter, wait.reason, wait.since) == ("dns", why.OUTDATED_REPORT, after(10))
    assert wait.message == "it has reported on generation 1, and not yet on 2"


def test_a_ready_resource_shows_since_when_and_its_next_check() -> None:
    state = with_statuses(created(), status("validation", at=1), status("dns", at=2))

    found = explained(state, at=62)

    assert (found.is_ready, found.waiting_for) == (True, ())
    assert sentences(found, at=62) == [
        "Cluster one: ready for 60s, at generation 1",
        "next check in 1739s (max age 1800s)",
    ]


def test_a_check_that_is_overdue_is_due_now() -> None:
    state = with_statuses(created(), status("validation", at=1), status("dns", at=1))

    line = sentences(explained(state, at=4000), at=4000)[-1]

    assert line == "next check due now, and every 1800s until it is answered: max age expired (ready)"


def test_a_paused_resource_has_no_next_pulse() -> None:
    found = explained(lifecycle.pause(created()), at=1)

    assert found.is_paused
    assert found.next_pulse is None
    assert sentences(found, at=1)[-1] == "paused: no events are sent for it until it is resumed"


def test_an_expression_that_is_false_is_named_as_the_cause() -> None:
    rules = AggregationRules(KindRules("clusters", "Cluster", "", REQUIRED), False, NEVER_READY)
    state = created(rules)
    for adapter in REQUIRED:
        state = lifecycle.with_status(state, rules, status(adapter, at=1), children=0)

    found = explained(state, at=3)

    assert why.is_up_to_expression(state.document.status)
    assert found.waiting_for == ()
    assert sentences(found, at=3)[0].endswith(": The expression of the kind is false")


def test_without_required_adapters_nothing_is_waited_for() -> None:
    rules = AggregationRules(KindRules("manifests", "Manifest"))

    found = explained(created(rules), at=3, required=())

    assert sentences(found, at=3)[0] == (
        "Manifest one: not ready for 3s: no adapter is required, so none can report it ready"
    )


@pytest.mark.parametrize(
    ("children", "line"), [(1, "waiting for 1 child to be deleted"), (2, "waiting for 2 children to be deleted")]
)
def test_a_deletion_waits_for_adapters_and_children(children: int, line: str) -> None:
    state = lifecycle.delete(created(), RULES, children=children, actor="me", now=after(10))
    state = with_statuses(
        state,
        status("dns", ConditionStatus.FALSE, at=11, generation=2, finalized=ConditionStatus.FALSE),
        status("validation", ConditionStatus.FALSE, at=11, generation=2),
        children=children,
    )

    found = explained(state, at=20, children=children)

    assert sentences(found, at=20)[:4] == [
        "Cluster one: being deleted for 10s",
        "waiting for dns to finalize for 10s: Cleaning – two left",
        "waiting for validation to finalize for 10s: it has not reported that it has cleaned up",
        line,
    ]


def test_children_of_a_live_resource_are_not_waited_for() -> None:
    assert explained(created(), at=1, children=5).children == 0


def test_a_time_ahead_of_our_clock_counts_as_now() -> None:
    assert sentences(explained(created(), at=-5), at=-5)[0] == "Cluster one: not ready for 0s"


def test_without_a_ready_condition_the_flat_time_counts() -> None:
    document = created().document
    bare = msgspec.structs.replace(document, status=msgspec.structs.replace(document.status, conditions=()))

    found = explained(ResourceState(bare), at=7)

    assert sentences(found, at=7)[0] == "Cluster one: not ready for 7s"


def test_blocking_adapters_are_found_from_the_document() -> None:
    def blocking(state: ResourceState) -> list[str]:
        document = state.document
        return why.blocking_adapters(document.status, generation=document.generation, required=REQUIRED)

    new = created()
    blocked = with_statuses(new, status("validation", at=1), status("dns", ConditionStatus.FALSE, at=1))
    ready = with_statuses(new, status("validation", at=1), status("dns", at=1))
    changed = lifecycle.change(ready, RULES, labels={"a": "b"}, spec=msgspec.Raw(b"{}"), actor="me", now=after(2))
    assert changed is not None

    assert [blocking(state) for state in (new, blocked, ready, changed)] == [
        ["dns", "validation"],
        ["dns"],
        [],
        ["dns", "validation"],
    ]
    assert all(blocking(state) == list(state.waiting) for state in (new, blocked, ready, changed))

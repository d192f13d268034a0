"""Conditions: transitions, order, and reading what others wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.kube import conditions
from sentinel.core.kube.conditions import Condition, ConditionStatus

NOW = datetime(2025, 10, 21, 12, 0, 0, 123456, tzinfo=UTC)
NOON = datetime(2025, 10, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
TRUE, FALSE, UNKNOWN = ConditionStatus

RUNNING: dict[str, Json] = {
    "type": "Running",
    "status": "True",
    "lastTransitionTime": "2025-10-21T12:00:00Z",
    "reason": "Polling",
    "message": "40 resources",
    "observedGeneration": 3,
}


def with_running(
    existing: list[Condition],
    status: ConditionStatus = TRUE,
    reason: str = "Polling",
    now: datetime = NOW,
    generation: int = 3,
) -> list[Condition]:
    return conditions.with_condition(
        existing,
        type="Running",
        status=status,
        reason=reason,
        message="40 resources",
        observed_generation=generation,
        now=now,
    )


def object_with(*entries: Json) -> dict[str, Json]:
    return {"status": {"conditions": list(entries)}}


def test_a_new_condition_is_appended_with_the_time_in_seconds() -> None:
    degraded = Condition("Degraded", FALSE, NOON)

    assert with_running([degraded]) == [degraded, Condition("Running", TRUE, NOON, "Polling", "40 resources", 3)]


def test_a_change_of_status_moves_the_transition_time() -> None:
    [running] = with_running(with_running([]), status=FALSE, now=LATER)

    assert running.status is FALSE
    assert running.last_transition_time == NOON + timedelta(hours=1)


def test_a_change_of_anything_else_keeps_the_transition_time() -> None:
    [running] = with_running(with_running([]), reason="Reloaded", now=LATER, generation=4)

    assert running == Condition("Running", TRUE, NOON, "Reloaded", "40 resources", 4)


def test_an_equal_condition_changes_nothing() -> None:
    existing = with_running([])

    assert with_running(existing, now=LATER) == existing


def test_conditions_keep_their_order() -> None:
    accepted, degraded = Condition("Accepted", TRUE, NOON), Condition("Degraded", FALSE, NOON)

    changed = with_running([accepted, *with_running([]), degraded], status=UNKNOWN)

    assert [each.type for each in changed] == ["Accepted", "Running", "Degraded"]
    assert (changed[0], changed[2]) == (accepted, degraded)


def test_a_condition_differs_in_each_of_its_fields() -> None:
    running = Condition("Running", TRUE, NOON, "Polling", "40 resources", 3)
    other = Condition("Other", FALSE, LATER, "Stopped", "", 4)

    for field in msgspec.structs.fields(Condition):
        assert running != msgspec.structs.replace(running, **{field.name: getattr(other, field.name)})


def test_conditions_are_found_by_type() -> None:
    [running] = with_running([])

    assert conditions.find([running], "Running") is running
    assert conditions.find([running], "Degraded") is None
    assert running.is_true


def test_a_condition_is_read_and_encoded_as_kubernetes_writes_it() -> None:
    read = conditions.read(object_with(RUNNING))

    assert read == with_running([])
    assert conditions.encode(read) == [RUNNING]


def test_optional_fields_may_be_absent() -> None:
    bare: Json = {"type": "Running", "status": "Unknown", "lastTransitionTime": "2025-10-21T14:00:00+02:00"}

    [read] = conditions.read(object_with(bare))

    assert read == Condition("Running", UNKNOWN, NOON)
    assert conditions.encode([read]) == [
        {
            "type": "Running",
            "status": "Unknown",
            "lastTransitionTime": "2025-10-21T12:00:00Z",
            "reason": "",
            "message": "",
        }
    ]


@pytest.mark.parametrize(
    "malformed",
    [
        "Running",
        {},
        {**RUNNING, "type": ""},
        {**RUNNING, "type": 1},
        {**RUNNING, "status": "Yes"},
        {**RUNNING, "status": True},
        {**RUNNING, "lastTransitionTime": "yesterday"},
        {**RUNNING, "lastTransitionTime": None},
        {**RUNNING, "reason": []},
        {**RUNNING, "observedGeneration": "3"},
    ],
)
def test_malformed_conditions_are_skipped(malformed: Json) -> None:
    assert conditions.read(object_with(malformed, RUNNING)) == with_running([])


def test_of_two_conditions_of_one_type_the_first_counts() -> None:
    assert conditions.read(object_with(RUNNING, {**RUNNING, "status": "False"})) == with_running([])


@pytest.mark.parametrize(
    "without", [{}, {"status": None}, {"status": []}, {"status": {}}, {"status": {"conditions": {"a": 1}}}]
)
def test_an_object_without_conditions_has_none(without: dict[str, Json]) -> None:
    assert conditions.read(without) == []


changes = st.tuples(st.sampled_from(["A", "B", "C"]), st.sampled_from(ConditionStatus), st.text())


@given(st.lists(changes))
def test_the_transition_time_is_that_of_the_last_change_of_status(
    changed: list[tuple[str, ConditionStatus, str]],
) -> None:
    current: list[Condition] = []
    transitions: dict[str, tuple[ConditionStatus, datetime]] = {}
    for minute, (type_, status, message) in enumerate(changed):
        now = NOON + timedelta(minutes=minute)
        if transitions.get(type_, (None, now))[0] is not status:
            transitions[type_] = status, now
        current = conditions.with_condition(
            current, type=type_, status=status, reason="R", message=message, observed_generation=1, now=now
        )
        current = conditions.read(object_with(*conditions.encode(current)))

    assert {each.type: (each.status, each.last_transition_time) for each in current} == transitions
    assert [each.type for each in current] == list(transitions)

"""Who owns which field after which write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.testing.kube import managed_fields
from sentinel.testing.kube.builtin_types import CONFIG_MAP, WORKLOAD
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_sets import as_text
from sentinel.testing.kube.managed_fields import Managed, Writer
from tests.support.kube.typed_values import EVERY_FIELD, objects

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def writer(name: str, *, after: int = 0, subresource: str = "") -> Writer:
    now = START + timedelta(seconds=after)
    return Writer(manager=name, api_version="v1", now=now, subresource=subresource)


def apply(
    live: dict[str, Json], owners: Managed, applied: dict[str, Json], name: str, *, is_forced: bool = False
) -> tuple[dict[str, Json], Managed]:
    return managed_fields.apply(CONFIG_MAP, live, applied, owners, writer(name), is_forced=is_forced)


def owned(owners: Managed) -> dict[str, list[str]]:
    return {manager.name: sorted(map(as_text, entry.fields)) for manager, entry in owners.items()}


def test_an_apply_owns_what_it_contains() -> None:
    new, owners = apply({}, {}, {"data": {"a": "1", "b": "2"}}, "x")

    assert new == {"data": {"a": "1", "b": "2"}}
    assert owned(owners) == {"x": [".data.a", ".data.b"]}


def test_an_apply_removes_what_it_applied_before() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1", "b": "2"}}, "x")

    new, owners = apply(live, owners, {"data": {"a": "1"}}, "x")

    assert new == {"data": {"a": "1"}}
    assert owned(owners) == {"x": [".data.a"]}


def test_a_shared_field_is_removed_by_its_last_owner() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1"}}, "x")
    live, owners = apply(live, owners, {"data": {"a": "1"}}, "y")

    shared, owners = apply(live, owners, {}, "x")
    gone, owners = apply(shared, owners, {}, "y")

    assert shared == {"data": {"a": "1"}}
    assert not gone.get("data")
    assert owned(owners) == {}


def test_a_changed_field_of_another_manager_is_a_conflict() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1", "b": "1"}}, "x")

    with pytest.raises(ApiError) as caught:
        apply(live, owners, {"data": {"a": "2", "b": "2", "c": "2"}}, "y")

    assert [(cause.field, cause.message) for cause in caught.value.causes] == [
        (".data.a", 'conflict with "x"'),
        (".data.b", 'conflict with "x"'),
    ]


def test_a_forced_apply_takes_the_field() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1", "b": "1"}}, "x")

    new, owners = apply(live, owners, {"data": {"a": "2"}}, "y", is_forced=True)

    assert new == {"data": {"a": "2", "b": "1"}}
    assert owned(owners) == {"x": [".data.b"], "y": [".data.a"]}


def test_an_update_takes_what_it_changes() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1", "b": "1"}}, "x")

    changed: dict[str, Json] = {"data": {"a": "2", "b": "1", "c": "2"}}
    owners = managed_fields.update(CONFIG_MAP, live, changed, owners, writer("y"))

    assert owned(owners) == {"x": [".data.b"], "y": [".data.a", ".data.c"]}


def test_an_update_that_only_removes_leaves_no_trace() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1", "b": "1"}}, "x")

    owners = managed_fields.update(CONFIG_MAP, live, {"data": {"b": "1"}}, owners, writer("y"))

    assert owned(owners) == {"x": [".data.b"]}


def test_names_and_versions_have_no_owner() -> None:
    body: dict[str, Json] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1", "labels": {"x": "1"}},
    }

    _, owners = apply({}, {}, body, "x")

    assert owned(owners) == {"x": [".metadata.labels.x"]}


def test_items_of_keyed_lists_have_their_own_owners() -> None:
    def pod(*containers: Json) -> dict[str, Json]:
        return {"spec": {"template": {"spec": {"containers": list(containers)}}}}

    first = pod({"name": "a", "image": "1", "ports": [{"containerPort": 80}]})
    live, owners = managed_fields.apply(WORKLOAD, {}, first, {}, writer("x"), is_forced=False)
    live, owners = managed_fields.apply(
        WORKLOAD, live, pod({"name": "b", "image": "1"}), owners, writer("y"), is_forced=False
    )
    without_ports = pod({"name": "a", "image": "1"})
    live, owners = managed_fields.apply(WORKLOAD, live, without_ports, owners, writer("x"), is_forced=False)

    assert live["spec"] == {
        "template": {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    }
    assert owned(owners)["y"] == [
        '.spec.template.spec.containers[name="b"]',
        '.spec.template.spec.containers[name="b"].image',
        '.spec.template.spec.containers[name="b"].name',
    ]


def test_an_apply_that_changes_nothing_keeps_its_time() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1"}}, "x")
    later = writer("x", after=60)

    _, again = managed_fields.apply(CONFIG_MAP, live, {"data": {"a": "1"}}, owners, later, is_forced=False)

    assert again == owners


def test_entries_are_sorted_by_operation_then_time() -> None:
    live, owners = apply({}, {}, {"data": {"a": "1"}}, "z")
    for number, name in enumerate(["c", "b"], start=1):
        changed: dict[str, Json] = {"data": {"a": "1", name: "1"}}
        owners = managed_fields.update(CONFIG_MAP, live, changed, owners, writer(name, after=number))

    entries = managed_fields.read({"managedFields": managed_fields.write(owners)})

    assert [(manager.operation, manager.name) for manager in entries] == [
        ("Apply", "z"),
        ("Update", "c"),
        ("Update", "b"),
    ]


def test_the_oldest_updates_are_combined() -> None:
    live: dict[str, Json] = {}
    owners: Managed = {}
    for number in range(12):
        changed: dict[str, Json] = {"data": {f"key{at}": "1" for at in range(number + 1)}}
        owners = managed_fields.update(CONFIG_MAP, live, changed, owners, writer(f"m{number:02}", after=number))
        live = changed

    assert [manager.name for manager in owners if manager.name == "ancient-changes"] == ["ancient-changes"]
    assert len(owners) == managed_fields.MAX_UPDATERS
    assert set().union(*(entry.fields for entry in owners.values())) >= {
        ("f:data", f"f:key{number}") for number in range(12)
    }


def test_a_subresource_has_an_entry_of_its_own() -> None:
    status = writer("x", subresource="status")

    owners = managed_fields.update(WORKLOAD, {}, {"spec": {"replicas": 1}}, {}, writer("x"))
    owners = managed_fields.update(
        WORKLOAD, {"spec": {"replicas": 1}}, {"spec": {"replicas": 1}, "status": {"replicas": 1}}, owners, status
    )

    assert sorted((manager.name, manager.subresource) for manager in owners) == [("x", ""), ("x", "status")]


@given(objects)
def test_entries_survive_their_encoding(body: dict[str, Json]) -> None:
    _, owners = managed_fields.apply(EVERY_FIELD, {}, body, {}, writer("x"), is_forced=False)
    owners = managed_fields.update(
        EVERY_FIELD, body, {"replicas": "other"}, owners, writer("y", subresource="status")
    )

    assert managed_fields.read({"managedFields": managed_fields.write(owners)}) == owners


@given(objects, objects)
def test_applying_twice_equals_applying_once(live: dict[str, Json], applied: dict[str, Json]) -> None:
    owners = managed_fields.update(EVERY_FIELD, {}, live, {}, writer("other"))

    once, first = managed_fields.apply(EVERY_FIELD, live, applied, owners, writer("x"), is_forced=True)
    twice, second = managed_fields.apply(EVERY_FIELD, once, applied, first, writer("x", after=60), is_forced=True)

    assert canonical(twice) == canonical(once)
    assert second == first


@given(objects, st.lists(st.tuples(st.sampled_from("xy"), objects), max_size=4))
def test_every_owned_field_exists(live: dict[str, Json], applied: list[tuple[str, dict[str, Json]]]) -> None:
    owners = managed_fields.update(EVERY_FIELD, {}, live, {}, writer("other"))
    for name, body in applied:
        live, owners = managed_fields.apply(EVERY_FIELD, live, body, owners, writer(name), is_forced=True)

    existing = managed_fields.update(EVERY_FIELD, {}, live, {}, writer("all"))

    everything = set().union(*(entry.fields for entry in existing.values()))
    assert set().union(*(entry.fields for entry in owners.values())) <= everything


@given(objects, objects)
def test_an_apply_of_nothing_undoes_an_apply(live: dict[str, Json], applied: dict[str, Json]) -> None:
    _, owners = managed_fields.apply(EVERY_FIELD, {}, applied, {}, writer("x"), is_forced=True)

    emptied, owners = managed_fields.apply(EVERY_FIELD, applied, {}, owners, writer("x"), is_forced=True)

    assert not any(emptied.values())
    assert owners == {}

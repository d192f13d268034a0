"""`managedFields` become sets of paths."""

from __future__ import annotations

from typing import Any

import pytest

from sentinel.core.drift import managed_fields, object_fields
from sentinel.core.drift.managed_fields import FieldHolders, ManagedFields, Writers
from tests.core.drift.objects import OPERATOR, entry


def read(fields: Any, **more: Any) -> ManagedFields:
    return managed_fields.read({"managedFields": [entry("team", fields, **more)]})


def fields_of(fields: Any) -> set[str]:
    (only,) = read(fields).entries
    return set(only.fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"f:spec": {"f:replicas": {}}}, {"/spec/replicas"}),
        ({"f:a": {".": {}, "f:b": {}}}, {"/a", "/a/b"}),
        ({"f:metadata": {"f:labels": {"f:a.b/c~d": {}}}}, {"/metadata/labels/a.b~1c~0d"}),
        ({"f:l": {'k:{"name":"bao"}': {".": {}, "f:image": {}}}}, {"/l/name=bao", "/l/name=bao/image"}),
        ({"f:l": {'k:{"protocol":"TCP","port":8200}': {}}}, {"/l/port=8200,protocol=TCP"}),
        ({"f:l": {'k:{"mountPath":"/data"}': {}}}, {"/l/mountPath=~1data"}),
        ({"f:s": {'v:"a/b"': {}, "v:5": {}, "v:true": {}}}, {"/s/a~1b", "/s/5", "/s/true"}),
        ({"f:l": {"i:0": {}}}, {"/l/0"}),
        ({"f:a": 5, "f:b": None}, {"/a", "/b"}),
        ({}, set()),
        ({".": {}}, set()),
        ({"f:l": {"k:x": {}, 'k:{"a"': {}, "k:{}": {}, "v:[1]": {}, "v:\ud800": {}, "?": {}}}, set()),
    ],
)
def test_fields_are_read_as_paths(fields: Any, expected: set[str]) -> None:
    assert fields_of(fields) == expected


def test_depth_is_no_problem() -> None:
    fields: Any = {}
    for _ in range(5_000):
        fields = {"f:a": fields}

    assert len(fields_of(fields)) == 1


def test_entries_tell_which_lists_are_keyed() -> None:
    managed = read({"f:a": {'k:{"y":1,"x":2}': {}}, "f:b": {'v:"x"': {}}, "f:c": {"i:0": {}}})

    assert managed.lists == {"/a": ("x", "y"), "/b": ()}


def test_members_of_an_entry_that_are_missing_are_empty() -> None:
    (only,) = managed_fields.read({"managedFields": [{"manager": "x", "operation": 5}]}).entries

    assert (only.operation, only.time, only.subresource, only.fields) == ("", "", "", frozenset())


@pytest.mark.parametrize(
    ("subresource", "fields", "expected"),
    [
        ("status", {"f:spec": {"f:a": {}}}, True),
        ("", {"f:status": {"f:a": {}}}, True),
        ("", {"f:status": {}}, True),
        ("", {"f:status": {}, "f:spec": {"f:a": {}}}, False),
        ("scale", {"f:spec": {"f:replicas": {}}}, False),
    ],
)
def test_some_entries_are_only_about_status(subresource: str, fields: Any, expected: bool) -> None:
    (only,) = read(fields, subresource=subresource).entries

    assert only.is_about_status is expected


def test_what_is_held_as_a_whole_includes_what_is_in_it() -> None:
    entries: list[Any] = [
        entry(OPERATOR, {"f:spec": {"f:selector": {}, "f:shared": {}}}),
        entry("team", {"f:spec": {"f:shared": {"f:a": {}}}}),
    ]
    held = FieldHolders(managed_fields.read({"managedFields": entries}).entries, frozenset({OPERATOR}))

    assert held.has_operator("/spec/selector/matchLabels/app")
    assert held.is_atomic("/spec/selector")
    assert not held.has_operator("/spec/shared/a")
    assert not held.is_atomic("/spec/shared")
    assert [each.manager for each in held.others("/spec/shared/a")] == ["team"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("/spec/set", ["a", 5], {"/spec/set/a", "/spec/set/5"}),
        ("/spec/set", ["a", "a"], set()),
        ("/spec/set", [{}], set()),
        ("/spec/keyed", [{"id": "a"}, {"id": "b"}], {"/spec/keyed/id=a", "/spec/keyed/id=b"}),
        ("/spec/keyed", [{"id": "a"}, {"id": "a"}], set()),
        ("/spec/keyed", [{}], set()),
        ("/spec/keyed", ["a"], set()),
        ("/spec/other", ["a"], set()),
    ],
)
def test_lists_are_flattened_by_their_keys(path: str, value: Any, expected: set[str]) -> None:
    body: dict[str, Any] = {"kind": "K", "spec": {path.rpartition("/")[2]: value}}

    nodes = object_fields.flatten(body, {"/spec/set": (), "/spec/keyed": ("id",)})

    members = {each for each in nodes if each.startswith(path + "/") and each.count("/") == 3}
    assert members == expected
    assert nodes[path].is_container == bool(expected)


def test_standard_lists_are_known_without_entries() -> None:
    port = {"containerPort": 8200}
    pod = {"containers": [{"name": "a", "ports": [port]}], "volumes": [{"name": "v"}]}
    stateful_set: dict[str, Any] = {"kind": "StatefulSet", "spec": {"template": {"spec": pod}}}
    service: dict[str, Any] = {"kind": "Service", "spec": {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}}

    assert "/spec/template/spec/containers/name=a/ports/containerPort=8200,protocol=TCP/containerPort" in (
        object_fields.flatten(stateful_set, {})
    )
    assert {"/spec/ports/port=1,protocol=TCP", "/spec/ports/port=1,protocol=UDP"} <= set(
        object_fields.flatten(service, {})
    )


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        ({"manager"}, {"Apply", "Update", "Update/scale"}),
        ({"manager/Apply"}, {"Apply"}),
        ({"manager/Update"}, {"Update", "Update/scale"}),
        ({"manager/Update/scale"}, {"Update/scale"}),
        ({"manager/Update/"}, {"Update"}),
        ({"manager/Apply", "manager/Update/scale"}, {"Apply", "Update/scale"}),
        ({"manage", "manager/apply", "other/Apply"}, set()),
    ],
)
def test_a_manager_may_be_limited_to_an_operation_and_a_subresource(
    managers: set[str], expected: set[str]
) -> None:
    field: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    entries = managed_fields.read(
        {
            "managedFields": [
                entry("manager", field, operation="Apply"),
                entry("manager", field),
                entry("manager", field, subresource="scale"),
            ]
        }
    ).entries

    found = FieldHolders(entries, frozenset(managers)).operators("/spec/replicas")

    assert {f"{each.operation}/{each.subresource}".rstrip("/") for each in found} == expected


def writers(before: list[Any], after: list[Any]) -> list[str]:
    """Return the managers that have written between two versions."""
    earlier, later = (managed_fields.read({"managedFields": entries}).entries for entries in (before, after))
    return [each.manager for each in Writers(earlier, later, frozenset()).all]


@pytest.mark.parametrize("other", [{"subresource": "scale"}, {"operation": "Apply"}, {"apiVersion": "v2"}])
def test_entries_of_one_manager_are_told_apart(other: dict[str, str]) -> None:
    field: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    entries = [entry("team", field), entry("team", field, time="2026-01-01T00:05:00Z", **other)]

    assert writers(entries, entries) == []
    assert writers(entries, entries[::-1]) == []
    assert writers(entries[:1], entries) == ["team"]


def test_a_time_that_is_missing_proves_no_write() -> None:
    field: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    with_time, without_time = entry("team", field), entry("team", field, time=None)

    assert writers([with_time], [without_time]) == []
    assert writers([without_time], [with_time]) == ["team"]

"""Sets of fields in the form of `managedFields`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.testing.kube import field_sets
from sentinel.testing.kube.field_sets import NotMergeable, fields_of, with_named_parents
from sentinel.testing.kube.field_types import (
    ATOMIC,
    MAP,
    SET,
    STRUCT,
    UNTYPED,
    FieldType,
    from_schema,
    keyed,
    struct,
)
from tests.support.kube.typed_values import EVERY_FIELD, objects

PORTS = keyed("port", "protocol", protocol="TCP")
ITEM = 'k:{"name":"x"}'
MEMBERS: dict[str, Json] = {".": {}, "f:b": {}, "f:name": {}}
PORT = 'k:{"port":1,"protocol":"TCP"}'

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)


@given(st.frozensets(paths, max_size=8))
def test_a_set_survives_its_encoding(fields: field_sets.FieldSet) -> None:
    assert field_sets.decode(field_sets.encode(fields)) == fields


@given(objects)
def test_every_field_of_an_object_survives_its_encoding(body: dict[str, Json]) -> None:
    fields = fields_of(EVERY_FIELD, body)

    assert field_sets.decode(field_sets.encode(fields)) == fields


@pytest.mark.parametrize(
    ("kind", "body", "encoded"),
    [
        (STRUCT, {"a": 1}, {"f:a": {}}),
        (STRUCT, {"a": {"b": 1}}, {"f:a": {"f:b": {}}}),
        (STRUCT, {"a": {}}, {"f:a": {}}),
        (STRUCT, {"a": None}, {"f:a": {}}),
        (STRUCT, {"a": [{"b": 1}]}, {"f:a": {}}),
        (struct(a=ATOMIC), {"a": {"b": 1}}, {"f:a": {}}),
        (struct(a=MAP), {"a": {"b": "1"}}, {"f:a": {"f:b": {}}}),
        (UNTYPED, {"a": {"b": 1}}, {"f:a": {".": {}, "f:b": {}}}),
        (struct(a=SET), {"a": ["x", "y"]}, {"f:a": {'v:"x"': {}, 'v:"y"': {}}}),
        (struct(a=SET), {"a": []}, {}),
        (struct(a=keyed("name")), {"a": [{"name": "x", "b": 1}]}, {"f:a": {ITEM: MEMBERS}}),
        (struct(a=PORTS), {"a": [{"port": 1}]}, {"f:a": {PORT: {".": {}, "f:port": {}}}}),
        (struct(a=keyed("name")), {"a": [{"name": "x"}, {"name": "x"}]}, {"f:a": {ITEM: {}}}),
    ],
)  # fmt: skip
def test_fields_are_encoded_as_in_kubernetes(kind: FieldType, body: Json, encoded: Json) -> None:
    assert field_sets.encode(fields_of(kind, body)) == encoded


@pytest.mark.parametrize(
    ("kind", "item"),
    [(keyed("name"), "x"), (keyed("name"), {"other": 1}), (SET, {"a": 1}), (SET, None)],
)
def test_an_item_without_an_identity_is_an_error(kind: FieldType, item: Json) -> None:
    with pytest.raises(NotMergeable, match="associative list"):
        fields_of(kind, [item])


def test_the_owner_of_a_member_counts_as_owner_of_the_named_fields_above() -> None:
    kind = struct(spec=struct(labels=MAP, containers=keyed("name")))
    owned = frozenset(
        {
            ("f:spec", "f:labels", "f:a"),
            ("f:spec", "f:containers", 'k:{"name":"x"}', "f:image"),
        }
    )

    named = with_named_parents(kind, owned)

    assert named - owned == {("f:spec",), ("f:spec", "f:labels"), ("f:spec", "f:containers")}


def test_a_path_reads_as_in_the_messages_of_the_server() -> None:
    path = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:finalizers", 'v:"x"')

    assert field_sets.as_text(path) == '.spec.ports[port=80,protocol="TCP"].finalizers[="x"]'


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, UNTYPED),
        ({"type": "array", "items": {"type": "string"}}, ATOMIC),
        ({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {}}}, ATOMIC),
        ({"x-kubernetes-list-type": "set", "items": {"type": "string"}}, FieldType(items=UNTYPED)),
        (
            {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}},
            },
            FieldType(
                items=FieldType(fields={"a": UNTYPED, "b": UNTYPED}, members=UNTYPED),
                keys=("a", "b"),
                key_defaults={"b": "x"},
            ),
        ),
        ({"additionalProperties": {"type": "string"}}, FieldType(members=UNTYPED)),
    ],
)
def test_a_schema_declares_how_values_are_merged(schema: dict[str, Json], kind: FieldType) -> None:
    assert from_schema(schema) == kind

"""Defaults, unknown fields and validation by a structural schema."""

from __future__ import annotations

import pytest
from hypothesis import given

from sentinel.core.json import Json
from sentinel.testing.kube.structural_schema import Schema, problems, with_defaults, without_nulls, without_unknown
from tests.support.kube.typed_values import objects

SPEC: Schema = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 5},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "items": {
            "type": "array",
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 1}},
            },
        },
        "tags": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "inner": {
            "type": "object",
            "default": {},
            "properties": {"depth": {"type": "integer", "default": 7}},
        },
    },
}
ROOT: Schema = {"type": "object", "properties": {"spec": dict(SPEC)}}


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({"size": 1}, {"size": 1, "color": "red", "inner": {"depth": 7}}),
        ({"color": None}, {"color": "red", "inner": {"depth": 7}}),
        (
            {"size": None, "note": None, "inner": {}, "color": "blue"},
            {"size": None, "note": None, "inner": {"depth": 7}, "color": "blue"},
        ),
        (
            {"items": [{"name": "a"}], "color": "x", "inner": {"depth": 1}},
            {"items": [{"name": "a", "weight": 1}], "color": "x", "inner": {"depth": 1}},
        ),
    ],
)
def test_absent_fields_get_their_defaults(given: Json, filled: Json) -> None:
    assert with_defaults(SPEC, given) == filled


def test_null_is_dropped_where_it_is_neither_allowed_nor_replaced() -> None:
    body: Json = {"size": None, "note": None, "color": None, "labels": {"a": None}, "items": [{"name": None}]}

    assert without_nulls(SPEC, body) == {"note": None, "color": None, "labels": {}, "items": [{}]}


@given(objects)
def test_defaults_are_set_once(body: dict[str, Json]) -> None:
    once = with_defaults(SPEC, body)

    assert with_defaults(SPEC, once) == once


def test_defaults_are_copies() -> None:
    first = with_defaults(SPEC, {})
    assert isinstance(first, dict)
    first["inner"] = {"depth": 0}

    assert with_defaults(SPEC, {}) == {"color": "red", "inner": {"depth": 7}}


@pytest.mark.parametrize(
    ("given", "kept", "unknown"),
    [
        ({"apiVersion": "v1", "metadata": {"x": 1}}, {"apiVersion": "v1", "metadata": {"x": 1}}, []),
        ({"spec": {"size": 1, "other": 2}, "more": 1}, {"spec": {"size": 1}}, ["more", "spec.other"]),
        ({"spec": {"labels": {"any": "x"}}}, {"spec": {"labels": {"any": "x"}}}, []),
        ({"spec": {"free": {"any": {"deep": 1}}}}, {"spec": {"free": {"any": {"deep": 1}}}}, []),
        ({"spec": {"items": [{"name": "a", "x": 1}]}}, {"spec": {"items": [{"name": "a"}]}}, ["spec.items[0].x"]),
    ],
)
def test_unknown_fields_are_dropped_and_named(given: Json, kept: Json, unknown: list[str]) -> None:
    assert without_unknown(ROOT, given) == (kept, unknown)


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({}, "spec.size", "Required", "Required value"),
        ({"size": "1"}, "spec.size", "TypeInvalid", 'spec.size in body must be of type integer: "string"'),
        ({"size": True}, "spec.size", "TypeInvalid", '"boolean"'),
        ({"size": None}, "spec.size", "TypeInvalid", '"null"'),
        ({"size": 0}, "spec.size", "Invalid", "should be greater than or equal to 1"),
        ({"size": 6}, "spec.size", "Invalid", "should be less than or equal to 5"),
        ({"size": 1, "color": "green"}, "spec.color", "NotSupported", 'supported values: "red", "blue"'),
        ({"size": 1, "name": "A1"}, "spec.name", "Invalid", "should match '^[a-z]+$'"),
        ({"size": 1, "name": "a"}, "spec.name", "Invalid", "should be at least 2 chars long"),
        ({"size": 1, "name": "abcde"}, "spec.name", "TooLong", "may not be more than 4 bytes"),
        ({"size": 1, "labels": {"a": 1}}, "spec.labels.a", "TypeInvalid", "must be of type string"),
        ({"size": 1, "labels": {"a": "", "b": "", "c": ""}}, "spec.labels", "TooMany", "at most 2 items"),
        ({"size": 1, "port": []}, "spec.port", "TypeInvalid", "must be of type integer,string"),
        ({"size": 1, "ratio": 0}, "spec.ratio", "Invalid", "should be greater than 0"),
        ({"size": 1, "items": [{"name": "a"}, {"name": "a"}]}, "spec.items[1]", "Duplicate", '{"name":"a"}'),
        ({"size": 1, "items": [{"name": 1}]}, "spec.items[0].name", "TypeInvalid", "must be of type string"),
        ({"size": 1, "tags": ["a", "a"]}, "spec.tags[1]", "Duplicate", '"a"'),
        ({"size": 1, "tags": []}, "spec.tags", "Invalid", "at least 1 items"),
    ],
)
def test_a_problem_has_field_reason_and_message(spec: Json, field: str, reason: str, message: str) -> None:
    [cause] = problems(ROOT, {"spec": spec})

    assert (cause.field, cause.reason) == (field, f"FieldValue{reason}")
    assert message in cause.message


@pytest.mark.parametrize(
    "spec",
    [{"size": 1, "port": 80}, {"size": 1.0, "port": "http"}, {"size": 5, "note": None, "ratio": 0.5}],
)
def test_a_valid_object_has_no_problems(spec: Json) -> None:
    assert list(problems(ROOT, {"metadata": {"name": 1}, "spec": spec})) == []

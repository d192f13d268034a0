"""Validates objects against the schema of a CustomResourceDefinition, as an API server does.

It knows as much of structural schemas as ours use. Validation rules are evaluated by the CEL library. The real API
server is the reference; this shows mistakes without one, and on thousands of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]  # it ships no types

from sentinel.core.json import Json

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_KNOWN = frozenset(
    (
        *("type", "description", "properties", "required", "items", "additionalProperties", "enum", "default"),
        *("minimum", "maximum", "minLength", "maxLength", "format", "x-kubernetes-validations"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-map-type"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    )
)


def errors(schema: Mapping[str, Any], value: Json, path: str = "") -> list[str]:
    """Return `path: problem` for everything that the schema does not allow. Unknown fields are pruned instead.

    Rules are evaluated on values that are valid otherwise.
    """
    found = list(_schema_errors(schema, value, path))
    return found or [
        f"{path}{rule.get('fieldPath', '')}: {rule['message']}"
        for rule in schema.get("x-kubernetes-validations", ())
        if not _holds(rule["rule"], value)
    ]


def _schema_errors(schema: Mapping[str, Any], value: Json, path: str) -> Iterator[str]:
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    expected = _TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        yield f"{path}: must be of type {schema['type']}"
        return
    if value not in schema.get("enum", [value]):
        yield f"{path}: unsupported value"
    if isinstance(value, int | float) and not _is_within_bounds(schema, value):
        yield f"{path}: out of bounds"
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 20):
        yield f"{path}: wrong length"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from errors(schema["items"], item, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from (f"{path}.{key}: required" for key in schema.get("required", ()) if key not in value)
        for key, inner in value.items():
            below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if below is not None:
                yield from errors(below, inner, f"{path}.{key}")


def _is_within_bounds(schema: Mapping[str, Any], value: float) -> bool:
    # API servers compare a whole number with truncated bounds.
    cut = int if isinstance(value, int) else float
    return cut(schema.get("minimum", value)) <= value <= cut(schema.get("maximum", value))


def with_defaults(schema: Mapping[str, Any], value: Json) -> Json:
    """Return the value with the defaults of the schema, at every level that is there."""
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    fields: Mapping[str, Any] = schema.get("properties", {})
    defaults = {key: field["default"] for key, field in fields.items() if "default" in field and key not in value}
    return {
        key: with_defaults(fields[key], inner) if key in fields else inner
        for key, inner in {**defaults, **value}.items()
    }


@cache
def _compiled(rule: str) -> cel.Expression:
    return cel.NewEnv(variables={"self": cel.Type.DYN}).compile(rule)


def _holds(rule: str, value: Json) -> bool:
    """Whether a rule holds. An error while it is evaluated is a violation, too."""
    return _compiled(rule).eval(data={"self": value}).value() is True

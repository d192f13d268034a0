"""The structural schemas of custom resources: defaults, unknown fields, and validation.

Checked are `type`, `nullable`, `required`, `enum`, `pattern`, the minima and maxima, and unique items in lists of
type `map` and `set`. NOT evaluated are CEL rules (`x-kubernetes-validations`), `format`, and `allOf`, `anyOf`,
`oneOf` and `not`: a test that depends on them needs a real API server.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.ports.kube import Cause

Schema: TypeAlias = Mapping[str, Json]

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def without_nulls(schema: Schema, value: Json) -> Json:
    """Return the value without members that are null although they must not be and have no default."""
    if isinstance(value, dict):
        kept: dict[str, Json] = {}
        for name, member in value.items():
            declared = member_schema(schema, name)
            if declared is None:
                kept[name] = member
            elif member is not None or declared.get("nullable") or "default" in declared:
                kept[name] = without_nulls(declared, member)
        return kept
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [without_nulls(items, item) for item in value]
    return value


def with_defaults(schema: Schema, value: Json) -> Json:
    """Return the value with the defaults of fields that are absent, or null although they must not be."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, property_schema in _properties(schema).items():
            default = property_schema.get("default")
            if default is not None and _is_missing(property_schema, filled.get(name)):
                filled[name] = copy.deepcopy(default)
        return {
            name: member if (declared := member_schema(schema, name)) is None else with_defaults(declared, member)
            for name, member in filled.items()
        }
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [
            with_defaults(items, copy.deepcopy(items.get("default")) if _is_missing(items, item) else item)
            for item in value
        ]
    return value


def without_unknown(schema: Schema, value: Json) -> tuple[Json, list[str]]:
    """Return the value without fields that the schema does not declare, and their paths."""
    unknown: list[str] = []
    return _pruned(schema, value, "", unknown, is_resource=True), sorted(unknown)


def _pruned(
    schema: Schema | None, value: Json, path: str, unknown: list[str], *, is_resource: bool = False
) -> Json:
    declared: Schema = schema if schema is not None else {}
    if isinstance(value, dict):
        kept: dict[str, Json] = {}
        is_resource = is_resource or declared.get("x-kubernetes-embedded-resource") is True
        for name, member in value.items():
            here = f"{path}.{name}" if path else name
            if is_resource and name in _ROOT_FIELDS:
                kept[name] = member
            elif (inner := member_schema(declared, name)) is not None:
                kept[name] = _pruned(inner, member, here, unknown)
            elif keeps_unknown(declared):
                kept[name] = member
            else:
                unknown.append(here)
        return kept
    if isinstance(value, list):
        items = declared.get("items")
        if not isinstance(items, dict):
            return value if keeps_unknown(declared) else [_pruned(None, item, path, unknown) for item in value]
        return [_pruned(items, item, f"{path}[{number}]", unknown) for number, item in enumerate(value)]
    return value


def keeps_unknown(schema: Schema) -> bool:
    """Whether members that are not declared are kept."""
    return schema.get("x-kubernetes-preserve-unknown-fields") is True or schema.get("additionalProperties") is True


def problems(schema: Schema, value: Json, path: str = "") -> Iterator[Cause]:
    """Yield what is wrong with a value, as the causes of a 422."""
    if value is None and schema.get("nullable"):
        return
    expected = _expected_type(schema)
    if expected and not any(_is_of_type(each, value) for each in expected):
        given, names = _type_name(value), ",".join(expected)
        text = f'Invalid value: "{given}": {path} in body must be of type {names}: "{given}"'
        yield Cause(path, text, "FieldValueTypeInvalid")
        return
    enum = schema.get("enum")
    if isinstance(enum, list) and canonical(value) not in map(canonical, enum):
        supported = ", ".join(map(_text, enum))
        yield Cause(
            path, f"Unsupported value: {_text(value)}: supported values: {supported}", "FieldValueNotSupported"
        )
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path)
    elif isinstance(value, list):
        yield from _list_problems(schema, value, path)
    elif isinstance(value, str):
        yield from _string_problems(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(schema, value, path)


def _object_problems(schema: Schema, value: dict[str, Json], path: str) -> Iterator[Cause]:
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            yield Cause(f"{path}.{name}" if path else str(name), "Required value", "FieldValueRequired")
    yield from _size_problems(schema, len(value), path, "Properties", "properties")
    for name, member in value.items():
        if not path and name in _ROOT_FIELDS:
            continue
        declared = member_schema(schema, name)
        if declared is not None:
            yield from problems(declared, member, f"{path}.{name}" if path else name)


def _list_problems(schema: Schema, value: list[Json], path: str) -> Iterator[Cause]:
    yield from _size_problems(schema, len(value), path, "Items", "items")
    items = schema.get("items")
    seen: set[bytes] = set()
    for number, item in enumerate(value):
        here = f"{path}[{number}]"
        identity = _identity(schema, item)
        if identity is not None:
            if canonical(identity) in seen:
                yield Cause(here, f"Duplicate value: {_text(identity)}", "FieldValueDuplicate")
            seen.add(canonical(identity))
        if isinstance(items, dict):
            yield from problems(items, item, here)


def _identity(schema: Schema, item: Json) -> Json:
    """Return what must be unique in a list, or None if nothing must."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return item
        case "map" if isinstance(item, dict):
            keys = schema.get("x-kubernetes-list-map-keys")
            return (
                {str(key): item[str(key)] for key in keys or () if str(key) in item}
                if isinstance(keys, list)
                else None
            )
        case _:
            return None


def _size_problems(schema: Schema, size: int, path: str, what: str, unit: str) -> Iterator[Cause]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if isinstance(least, int) and size < least:
        text = f"Invalid value: {size}: {path} in body should have at least {least} {unit}"
        yield Cause(path, text, "FieldValueInvalid")
    if isinstance(most, int) and size > most:
        yield Cause(path, f"Too many: {size}: must have at most {most} items", "FieldValueTooMany")


def _string_problems(schema: Schema, value: str, path: str) -> Iterator[Cause]:
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if isinstance(least, int) and len(value) < least:
        text = f"Invalid value: {_text(value)}: {path} in body should be at least {least} chars long"
        yield Cause(path, text, "FieldValueInvalid")
    if isinstance(most, int) and len(value) > most:
        yield Cause(path, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")
    if isinstance(pattern, str) and not re.search(pattern, value):
        text = f"Invalid value: {_text(value)}: {path} in body should match '{pattern}'"
        yield Cause(path, text, "FieldValueInvalid")


def _number_problems(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and (value < least or (value == least and schema.get("exclusiveMinimum"))):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        text = f"Invalid value: {_text(value)}: {path} in body should be {bound} {least}"
        yield Cause(path, text, "FieldValueInvalid")
    if isinstance(most, int | float) and (value > most or (value == most and schema.get("exclusiveMaximum"))):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        text = f"Invalid value: {_text(value)}: {path} in body should be {bound} {most}"
        yield Cause(path, text, "FieldValueInvalid")


def _properties(schema: Schema) -> dict[str, dict[str, Json]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: declared for name, declared in properties.items() if isinstance(declared, dict)}


def member_schema(schema: Schema, name: str) -> Schema | None:
    """Return the schema of a member, or None if it is not declared."""
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    declared = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(declared, dict):
        return declared
    return additional if isinstance(additional, dict) else None


def _is_missing(declared: Schema, value: Json) -> bool:
    return value is None and not declared.get("nullable")


def _expected_type(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    declared = schema.get("type")
    return (declared,) if isinstance(declared, str) and declared else ()


def _is_of_type(name: str, value: Json) -> bool:
    match name:
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return _type_name(value) == name


def _type_name(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()

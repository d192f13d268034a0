"""What server-side apply checks in a body before it merges it.

A body whose types are wrong is a 500 in Kubernetes, with a message and without a reason, although nothing but the
body is to blame. Only then is the merged object validated as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from sentinel.core.json import Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_sets import NotMergeable, Path, as_text, field_element, item_element
from sentinel.testing.kube.field_types import FieldType
from sentinel.testing.kube.kinds import ServedKind
from sentinel.testing.kube.objects import metadata_of, name_of, text
from sentinel.testing.kube.structural_schema import Schema, keeps_unknown, member_schema

_EXPECTED = {"integer": "numeric (int or float)", "number": "numeric (int or float)", "boolean": "boolean"}
_HEAD = ("apiVersion", "kind", "metadata")


def check(served: ServedKind, body: KubeObject) -> None:
    """Raise `ApiError` if a body cannot be merged."""
    found = sorted(_problems(served.schema, served.field_type, body, ()))
    if found:
        listed = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        subject = f"{text(metadata_of(body), 'namespace')}/{name_of(body)}; {served.kind.api_version}"
        message = f"failed to create typed patch object ({subject}, Kind={served.kind.kind}): {listed}"
        raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def _problems(schema: Schema | None, kind: FieldType, value: Json, path: Path) -> Iterator[str]:
    expected = _expected(schema)
    if value is None:
        return
    if expected and not _is(expected, value):
        yield f"{as_text(path)}: expected {_EXPECTED.get(expected, expected)}, got {_go_value(expected, value)}"
    elif isinstance(value, dict):
        yield from _member_problems(schema, kind, value, path)
    elif isinstance(value, list):
        yield from _item_problems(schema, kind, value, path)


def _member_problems(schema: Schema | None, kind: FieldType, value: dict[str, Json], path: Path) -> Iterator[str]:
    for name in sorted(value):
        inner = None if schema is None else member_schema(schema, name)
        is_head = not path and name in _HEAD
        if schema is not None and inner is None and not (is_head or keeps_unknown(schema)):
            yield f"{as_text((*path, field_element(name)))}: field not declared in schema"
            return
        yield from _problems(inner, kind.member(name)[0], value[name], (*path, field_element(name)))


def _item_problems(schema: Schema | None, kind: FieldType, value: list[Json], path: Path) -> Iterator[str]:
    items = schema.get("items") if schema is not None else None
    inner = items if isinstance(items, dict) else None
    seen: set[str] = set()
    for number, item in enumerate(value):
        if kind.items is None:
            yield from _problems(inner, kind.item_type, item, (*path, f"i:{number}"))
            continue
        try:
            element = item_element(kind, item)
        except NotMergeable as problem:
            yield f"{as_text(path)}: element {number}: {problem}"
            continue
        if element in seen:
            yield f"{as_text(path)}: duplicate entries for key {as_text((element,))}"
        seen.add(element)
        yield from _problems(inner, kind.item_type, item, (*path, element))


def _expected(schema: Schema | None) -> str:
    match schema.get("type") if schema is not None else None:
        case "array":
            return "list"
        case "object":
            return "map"
        case "string" | "integer" | "number" | "boolean" as name:
            return str(name)
        case _:
            return ""


def _is(expected: str, value: Json) -> bool:
    match expected:
        case "list":
            return isinstance(value, list)
        case "map":
            return isinstance(value, dict)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _go_value(expected: str, value: Json) -> str:
    """Return a value as the message shows it, which depends on what was expected."""
    if expected in ("list", "map"):
        return f"&{{{_go_text(value)}}}"
    if expected == "string":
        return f"&value.valueUnstructured{{Value:{_go_text(value)}}}"
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int():
            return "int64"
        case float():
            return "float64"
        case list():
            return "[]interface {}"
        case _:
            return "map[string]interface {}"


def _go_text(value: Json) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case list():
            return f"[{' '.join(map(_go_text, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{_go_text(value[key])}' for key in sorted(value))}]"
        case _:
            return str(value)

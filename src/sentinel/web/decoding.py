"""Decodes bytes and query strings into text and structs. Errors name the field.

msgspec stops at the first error and describes it in terms of Python. This module translates that into terms of the
request: which field, what was expected, what was received, and what was probably meant.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import inspect

from sentinel.runtime.settings.report import closest_match
from sentinel.web import problem
from sentinel.web.problem import FieldError, Problem, field_path, shown

T = TypeVar("T")

_ERROR = re.compile(r"(?P<message>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_TYPE_NAME = re.compile(r"`([a-z0-9| ]+)`")
_TYPE_WORDS = {
    "int": "an integer",
    "str": "a string",
    "bool": "a boolean",
    "float": "a number",
    "object": "an object",
    "array": "an array",
    "null": "null",
    "datetime": "a time",
}
_MAX_PARAMETERS = 64


def decode_utf8(content: bytes) -> str:
    """Decode UTF-8. Anything else is a 400 with line and column."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(errors="replace")
        raise _malformed_after(before, "expected UTF-8, got a byte that is not") from None


def decode_plain_text(content: bytes) -> str:
    """Decode text that is stored as it is. Also rejects NUL, which PostgreSQL cannot store in text."""
    text = decode_utf8(content)
    if (position := text.find("\0")) >= 0:
        raise _malformed_after(text[:position], "expected text, got a NUL character")
    return text


def _malformed_after(before: str, message: str) -> Problem:
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return problem.malformed(message, line=line, column=column)


def decode(body: bytes, type: type[T]) -> T:  # noqa: A002  # msgspec's own name
    """Decode a JSON body. A value that does not match the type is a 400 that names the field."""
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise _explain(str(error), type, body) from None
    except msgspec.DecodeError as error:
        # Not reached by bodies that `strict_json` has checked. msgspec's message has the position.
        raise problem.malformed(f"expected JSON, got a syntax error: {error}") from None


def decode_query(query: bytes, struct: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    """Decode a query string. All unknown, repeated and invalid parameters are reported together."""
    given, errors = _parameters(query)
    known = () if struct is None else struct.__struct_encode_fields__
    errors += [FieldError(name, _unknown(name, known, "parameter")) for name in given if name not in known]
    if struct is None:
        if errors:
            raise problem.bad_fields(errors)
        return None
    try:
        decoded = msgspec.convert(
            {name: text for name, text in given.items() if name in known}, struct, strict=False
        )
    except msgspec.ValidationError as error:
        errors += _explain(str(error), struct, None, given).errors
        raise problem.bad_fields(errors) from None
    # msgspec converts the text "null" to None, which only an omitted parameter may be.
    errors += [
        FieldError(name, f"expected a value, got {shown(given[name])}")
        for name, attribute in zip(known, struct.__struct_fields__, strict=True)
        if name in given and getattr(decoded, attribute) is None
    ]
    if errors:
        raise problem.bad_fields(errors)
    return decoded


def _parameters(query: bytes) -> tuple[dict[str, str], list[FieldError]]:
    given: dict[str, str] = {}
    errors: list[FieldError] = []
    parts = query.split(b"&") if query else []
    if len(parts) > _MAX_PARAMETERS:
        raise problem.bad_request(f"expected at most {_MAX_PARAMETERS} query parameters, got {len(parts)}")
    for part in parts:
        if not part:
            continue
        raw_name, _, raw_value = part.partition(b"=")
        try:
            name = unquote_to_bytes(raw_name.replace(b"+", b" ")).decode()
            value = unquote_to_bytes(raw_value.replace(b"+", b" ")).decode()
        except UnicodeDecodeError:
            raise problem.bad_request("expected query parameters in UTF-8, got a byte that is not") from None
        if name in given:
            errors.append(FieldError(name, "expected this parameter once, got it repeatedly"))
        elif "\0" in value:
            errors.append(FieldError(name, "expected text, got a NUL character"))
        given.setdefault(name, value)
    return given, errors


def _explain(error: str, type_: Any, body: bytes | None, given: dict[str, str] | None = None) -> Problem:
    matched = _ERROR.fullmatch(error)
    message, msgspec_path = (error, "") if matched is None else (matched["message"], matched["path"] or "")
    is_key = matched is not None and matched["key"] is not None
    steps = list(_steps(msgspec_path))
    declared: inspect.Type | None = inspect.type_info(type_)
    if body is not None and None in steps:
        steps = _resolve(steps, error, type_, msgspec.json.decode(body))
    path = ""
    for step in steps:
        path = f"{path}[…]" if step is None else field_path(path, step)
        declared = _type_at(declared, step)

    if (missing := _MISSING.fullmatch(message)) is not None:
        return problem.bad_field(field_path(path, missing["name"]), "required, but missing")
    if (unknown := _UNKNOWN.fullmatch(message)) is not None:
        known = _field_names(declared)
        return problem.bad_field(field_path(path, unknown["name"]), _unknown(unknown["name"], known, "field"))
    words = _choices(declared) if message.startswith("Invalid enum value") else ""
    if given is not None and path in given:
        words = f"{words or _expected(message)}, got {shown(given[path])}"
    words = words or _in_words(message)
    return problem.bad_field(path, f"of one of its keys: {words}" if is_key else words)


def _steps(msgspec_path: str) -> Iterator[str | int | None]:
    """Yield the steps of msgspec's path. None stands for `[...]`: some member of a mapping."""
    for step in _STEP.finditer(msgspec_path):
        if step["any"]:
            yield None
        else:
            yield step["name"] if step["index"] is None else int(step["index"])


def _resolve(steps: Sequence[str | int | None], error: str, type_: Any, tree: Any) -> list[str | int | None]:
    """Replace None by the keys that msgspec does not report."""
    resolved: list[str | int | None] = []
    for position, step in enumerate(steps):
        known = _first_invalid_key(tree, resolved, error, type_) if step is None else step
        if known is None:
            return [*resolved, *steps[position:]]
        resolved.append(known)
    return resolved


def _first_invalid_key(tree: Any, path: Sequence[str | int | None], error: str, type_: Any) -> str | None:
    """Return the first key of the mapping at this path that alone causes the same error."""
    mapping = _at(tree, path)
    members: list[tuple[str, Any]] = list(mapping.items()) if isinstance(mapping, dict) else []

    def is_invalid(some: Sequence[tuple[str, Any]]) -> bool:
        try:
            msgspec.convert(_replaced(tree, path, dict(some)), type_)
        except msgspec.ValidationError as again:
            return str(again) == error
        return False

    # Binary search: each attempt validates the whole body, so trying a thousand members would take seconds.
    # msgspec stops at the first error, so every prefix that contains the invalid member fails with the same
    # message.
    first = bisect_left(range(len(members)), True, key=lambda last: is_invalid(members[: last + 1]))
    alone = members[first : first + 1]
    return alone[0][0] if alone and is_invalid(alone) else None


def _at(tree: Any, path: Sequence[str | int | None]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _replaced(tree: Any, path: Sequence[str | int | None], value: Any) -> Any:
    if not path:
        return value
    first, *rest = path
    copy: Any = list(tree) if isinstance(tree, list) else dict(tree)
    copy[first] = _replaced(tree[first], rest, value)
    return copy


def _type_at(declared: inspect.Type | None, step: str | int | None) -> inspect.Type | None:
    match _concrete(declared):
        case inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == step), None)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return inner
        case inspect.DictType(value_type=inner):
            return inner
        case _:
            return None


def _concrete(declared: inspect.Type | None) -> inspect.Type | None:
    """Unwrap metadata and optional types; None for other unions."""
    while True:
        match declared:
            case inspect.Metadata(type=inner):
                declared = inner
            case inspect.UnionType(types=types):
                containers = [each for each in types if not isinstance(each, inspect.NoneType)]
                if len(containers) != 1:
                    return None
                declared = containers[0]
            case _:
                return declared


def _field_names(declared: inspect.Type | None) -> tuple[str, ...]:
    concrete = _concrete(declared)
    return (
        tuple(field.encode_name for field in concrete.fields) if isinstance(concrete, inspect.StructType) else ()
    )


def _choices(declared: inspect.Type | None) -> str:
    match _concrete(declared):
        case inspect.EnumType(cls=choices):
            return f"expected one of {', '.join(str(choice.value) for choice in choices)}"
        case inspect.LiteralType(values=values):
            return f"expected one of {', '.join(map(str, values))}"
        case _:
            return ""


def _unknown(name: str, known: Sequence[str], what: str) -> str:
    suggestion = closest_match(name, known)
    if suggestion is not None:
        return f"unknown {what}; did you mean {suggestion}?"
    return f"unknown {what}; expected one of {', '.join(known)}" if known else f"unknown {what}; expected none"


def _expected(message: str) -> str:
    return _in_words(message).partition(", got ")[0]


def _in_words(message: str) -> str:
    """Replace Python's type names in msgspec's message."""

    def words(matched: re.Match[str]) -> str:
        return " or ".join(_TYPE_WORDS.get(name.strip(), name.strip()) for name in matched[1].split("|"))

    text = _TYPE_NAME.sub(words, message)
    if text.startswith("Invalid RFC3339"):
        return "expected a time with its zone, such as 2026-01-31T12:00:00Z"
    if text.startswith("Invalid enum value"):
        text = f"expected another value, got {text.removeprefix('Invalid enum value ')}"
    return text[:1].lower() + text[1:]

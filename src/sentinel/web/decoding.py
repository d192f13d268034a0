"""Turning bytes and query strings into structs, and what does not fit into words that name the field.

msgspec stops at the first thing that does not fit and says what Python would call it. Here that becomes the path
and the words of the client's own request: which field, what was expected, what came, what was probably meant.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import inspect

from sentinel.runtime.settings.report import closest
from sentinel.web import problem
from sentinel.web.problem import FieldError, Problem, shown
from sentinel.web.strict_json import join

T = TypeVar("T")

_PLACE = re.compile(r"(?P<message>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_TYPE_NAME = re.compile(r"`([a-z0-9| ]+)`")
_WORDS = {
    "int": "an integer",
    "str": "a string",
    "bool": "a boolean",
    "float": "a number",
    "object": "an object",
    "array": "an array",
    "null": "null",
    "datetime": "a time",
}
_MOST_PARAMETERS = 64


def decode(body: bytes, type: type[T]) -> T:  # noqa: A002  # msgspec's own word for it
    """What the body says, as this type. Whatever does not fit is a 400 that names the field."""
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise _explain(str(error), type, body) from None
    except msgspec.DecodeError as error:
        # Not reached by bodies that were checked before; msgspec's message has the byte.
        raise problem.malformed(f"expected JSON, got a syntax error: {error}") from None


def decode_query(query: bytes, struct: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    """The query string as this struct. Unknown, repeated and unfit parameters are refused, all at once."""
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
    # msgspec takes the text "null" for nothing, and nothing is what a parameter that is left out says already.
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
    if len(parts) > _MOST_PARAMETERS:
        raise problem.bad_request(f"expected at most {_MOST_PARAMETERS} query parameters, got {len(parts)}")
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
    matched = _PLACE.fullmatch(error)
    message, place = (error, "") if matched is None else (matched["message"], matched["path"] or "")
    is_key = matched is not None and matched["key"] is not None
    steps = list(_steps(place))
    declared: inspect.Type | None = inspect.type_info(type_)
    if body is not None and None in steps:
        steps = _resolve(steps, error, type_, msgspec.json.decode(body))
    path = ""
    for step in steps:
        path = f"{path}[…]" if step is None else join(path, step)
        declared = _within(declared, step)

    if (missing := _MISSING.fullmatch(message)) is not None:
        return problem.bad_field(join(path, missing["name"]), "required, but missing")
    if (unknown := _UNKNOWN.fullmatch(message)) is not None:
        known = _field_names(declared)
        return problem.bad_field(join(path, unknown["name"]), _unknown(unknown["name"], known, "field"))
    words = _choices(declared) if message.startswith("Invalid enum value") else ""
    if given is not None and path in given:
        words = f"{words or _expected(message)}, got {shown(given[path])}"
    words = words or _in_words(message)
    return problem.bad_field(path, f"of one of its keys: {words}" if is_key else words)


def _steps(place: str) -> Iterator[str | int | None]:
    """The steps of msgspec's path; None where it does not say which member of a mapping it means."""
    for step in _STEP.finditer(place):
        if step["any"]:
            yield None
        else:
            yield step["name"] if step["index"] is None else int(step["index"])


def _resolve(steps: Sequence[str | int | None], error: str, type_: Any, tree: Any) -> list[str | int | None]:
    """The same steps with the keys that msgspec keeps to itself."""
    resolved: list[str | int | None] = []
    for position, step in enumerate(steps):
        known = _first_refused(tree, resolved, error, type_) if step is None else step
        if known is None:
            return [*resolved, *steps[position:]]
        resolved.append(known)
    return resolved


def _first_refused(tree: Any, path: Sequence[str | int | None], error: str, type_: Any) -> str | None:
    """The first member of the mapping at this path which, alone in it, is refused with these words."""
    holder = _at(tree, path)
    members: list[tuple[str, Any]] = list(holder.items()) if isinstance(holder, dict) else []

    def is_refused(some: Sequence[tuple[str, Any]]) -> bool:
        try:
            msgspec.convert(_replaced(tree, path, dict(some)), type_)
        except msgspec.ValidationError as again:
            return str(again) == error
        return False

    # By halves, because every try reads the whole body: a thousand, one by one, would take seconds. msgspec stops
    # at the first fault, so whatever begins with the member that has it is refused in the same words.
    first = bisect_left(range(len(members)), True, key=lambda last: is_refused(members[: last + 1]))
    alone = members[first : first + 1]
    return alone[0][0] if alone and is_refused(alone) else None


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


def _within(declared: inspect.Type | None, step: str | int | None) -> inspect.Type | None:
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
    """The one type that a path can lead into, out of a union and its metadata."""
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
    meant = closest(name, known)
    if meant is not None:
        return f"unknown {what}; did you mean {meant}?"
    return f"unknown {what}; expected one of {', '.join(known)}" if known else f"unknown {what}; expected none"


def _expected(message: str) -> str:
    return _in_words(message).partition(", got ")[0]


def _in_words(message: str) -> str:
    """msgspec's message, less the names that only Python knows."""

    def words(matched: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(name.strip(), name.strip()) for name in matched[1].split("|"))

    said = _TYPE_NAME.sub(words, message)
    if said.startswith("Invalid RFC3339"):
        return "expected a time with its zone, such as 2026-01-31T12:00:00Z"
    if said.startswith("Invalid enum value"):
        said = f"expected another value, got {said.removeprefix('Invalid enum value ')}"
    return said[:1].lower() + said[1:]

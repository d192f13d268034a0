"""The predefined functions of text/template.

Each takes values and returns one, or raises `RenderError` with Go's message, but without values of the document.
`and` and `or` are here by name only: they evaluate their arguments lazily, so `evaluate` implements them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote_plus

import msgspec

from sentinel.core.gotemplate import printer
from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.printf import sprintf
from sentinel.core.gotemplate.values import (
    Int,
    Nothing,
    Slice,
    Uint8,
    Value,
    from_bytes,
    to_bytes,
    to_value,
    type_name,
)
from sentinel.core.json import Json

Arguments: TypeAlias = Sequence[Value]


class Builtin(msgspec.Struct, frozen=True):
    """A function and its number of arguments."""

    run: Callable[[Arguments], Value]
    min_arguments: int
    max_arguments: int | None = None
    """None for any number."""
    prints: bool = False
    """Whether it prints its arguments, so that a missing field is reported."""


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Int: "int",
    Uint8: "int",  # Go compares signed and unsigned integers with each other
    float: "float",
    complex: "complex",
    str: "string",
}
_NO_ORDER: Final = ("bool", "complex")


def _eq(arguments: Arguments) -> bool:
    first, *others = arguments
    if not others:
        raise RenderError("missing argument for comparison")
    return any(_is_equal(first, other) for other in others)


def _is_equal(first: Value, second: Value) -> bool:
    if isinstance(first, Nothing) or isinstance(second, Nothing):
        return isinstance(first, Nothing) and isinstance(second, Nothing)
    one, other = _KINDS.get(type(first)), _KINDS.get(type(second))
    if one != other:
        raise RenderError(f"incompatible types for comparison: {type_name(first)} and {type_name(second)}")
    if one is None:
        raise RenderError(f"non-comparable types: {type_name(first)} and {type_name(second)}")
    return first == second


def _ordering(compare: Callable[[Any, Any], bool]) -> Builtin:
    def run(arguments: Arguments) -> Value:
        first, second = arguments
        one, other = _KINDS.get(type(first)), _KINDS.get(type(second))
        if one is None or other is None or (one == other and one in _NO_ORDER):
            raise RenderError("invalid type for comparison")
        if one != other:
            raise RenderError(f"incompatible types for comparison: {type_name(first)} and {type_name(second)}")
        if isinstance(first, str) and isinstance(second, str):
            return compare(to_bytes(first), to_bytes(second))
        return compare(first, second)

    return Builtin(run, 2, 2)


def _position(index: Value, capacity: int) -> int:
    """Return an index from 0 to `capacity`."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise RenderError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= capacity:
        raise RenderError(f"index out of range: the length is {capacity}")
    return int(index)


def _index(arguments: Arguments) -> Value:
    item, *indexes = arguments
    if isinstance(item, Nothing):
        raise RenderError("index of untyped nil")
    for index in indexes:
        if isinstance(item, dict):
            if not isinstance(index, str):
                raise RenderError(f"value has type {type_name(index)}; should be string")
            item = to_value(item[index]) if index in item else Nothing.ABSENT
        elif isinstance(item, list):
            item = to_value(item[_within(index, len(item))])
        elif isinstance(item, str):
            octets = to_bytes(item)
            item = Uint8(octets[_within(index, len(octets))])
        elif isinstance(item, Nothing):
            raise RenderError("index of nil pointer")
        else:
            raise RenderError(f"can't index item of type {type_name(item)}")
    return item


def _within(index: Value, length: int) -> int:
    position = _position(index, length)
    if position == length:
        raise RenderError(f"index out of range: the length is {length}")
    return position


def _slice(arguments: Arguments) -> Value:
    item, *indexes = arguments
    if isinstance(item, Nothing):
        raise RenderError("slice of untyped nil")
    if len(indexes) > 3:
        raise RenderError(f"too many slice indexes: {len(indexes)}")
    if isinstance(item, str):
        if len(indexes) == 3:
            raise RenderError("cannot 3-index slice a string")
        octets = to_bytes(item)
        start, end, _ = _bounds(indexes, len(octets), len(octets))
        return from_bytes(octets[start:end])
    if isinstance(item, list):
        whole: list[Json] = [*item, *item.rest] if isinstance(item, Slice) else item
        start, end, capacity = _bounds(indexes, len(item), len(whole))
        return Slice(whole[start:end], whole[end:capacity])
    raise RenderError(f"can't slice item of type {type_name(item)}")


def _bounds(indexes: Arguments, length: int, capacity: int) -> tuple[int, int, int]:
    given = [_position(index, capacity) for index in indexes]
    bounds = [*given, *(0, length, capacity)[len(given) :]]
    for low, high in itertools.pairwise(bounds):
        if low > high:
            raise RenderError("invalid slice index: the slice would end before it begins")
    return bounds[0], bounds[1], bounds[2]


def _len(arguments: Arguments) -> Value:
    (item,) = arguments
    if isinstance(item, str):
        return Int(len(item) if item.isascii() else len(to_bytes(item)))
    if isinstance(item, list | dict):
        return Int(len(item))
    raise RenderError("len of nil pointer" if isinstance(item, Nothing) else f"len of type {type_name(item)}")


def _printf(arguments: Arguments) -> Value:
    form, *others = arguments
    if not isinstance(form, str):
        raise RenderError(f"wrong type for value; expected string; got {type_name(form)}")
    return sprintf(form, others)


def _text(arguments: Arguments) -> str:
    """Return the text to escape. As in Go, a missing value is `<no value>`."""
    return printer.sprint(["<no value>" if isinstance(value, Nothing) else value for value in arguments])


_HTML: Final = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JS: Final = {chr(code): f"\\u00{code:02X}" for code in (*range(32), *map(ord, "<>&="))} | {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}


def _js(arguments: Arguments) -> str:
    return "".join(
        [_JS.get(char) or (char if _is_shown(char) else f"\\u{ord(char):04X}") for char in _text(arguments)]
    )


def _is_shown(char: str) -> bool:
    return char.isascii() or char.isprintable() or "\ud800" <= char <= "\udfff"


LAZY_FUNCTIONS: Final = {"and": False, "or": True}
"""The functions that stop at the first argument with this truth value."""

FUNCTIONS: Final[dict[str, Builtin]] = {
    "not": Builtin(lambda arguments: not arguments[0], 1, 1),
    "eq": Builtin(_eq, 1),
    "ne": Builtin(lambda arguments: not _is_equal(*arguments), 2, 2),
    "lt": _ordering(operator.lt),
    "le": _ordering(operator.le),
    "gt": _ordering(operator.gt),
    "ge": _ordering(operator.ge),
    "index": Builtin(_index, 1),
    "slice": Builtin(_slice, 1),
    "len": Builtin(_len, 1, 1),
    "print": Builtin(printer.sprint, 0, prints=True),
    "printf": Builtin(_printf, 1, prints=True),
    "println": Builtin(printer.sprintln, 0, prints=True),
    "html": Builtin(lambda arguments: _text(arguments).translate(_HTML), 0, prints=True),
    "js": Builtin(_js, 0, prints=True),
    "urlquery": Builtin(lambda arguments: quote_plus(to_bytes(_text(arguments))), 0, prints=True),
}

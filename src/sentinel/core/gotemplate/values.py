"""The values of a template: JSON, and the few types that Go adds to it.

A JSON integer is an int64 and a plain `int` here. An integer that does not fit, and every other number, is a
float64. Constants, lengths and indexes are Go's `int`, and the bytes of a string its `uint8`. The difference shows
in `%T` and in error marks. Go's strings are bytes, usually UTF-8, and `slice` may cut a character in two. Such
bytes are kept as lone surrogates (`surrogateescape`) until the text is complete.

Go has two kinds of nil. A null in a list or an object is an interface that holds nil, and a field of it is an
error. After a pipeline has passed it on, it is no value at all, like a missing field, and a field of that is
missing again. Here the first is None and exists only inside documents. The second is `Nothing`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias

from sentinel.core.json import Json

MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1


class Nothing(Enum):
    """No value."""

    NIL = "nil"
    """A null, or `nil`."""
    ABSENT = "absent"
    """A key that an object does not have. Printing it is reported."""

    def __bool__(self) -> bool:
        return False


class Int(int):
    """Go's `int`."""

    __slots__ = ()


class Uint8(int):
    """A byte."""

    __slots__ = ()


class Slice(list[Json]):
    """A slice of a list. As in Go, it can be sliced again beyond its end, up to the end of the list."""

    __slots__ = ("rest",)

    def __init__(self, items: Iterable[Json], rest: list[Json]) -> None:
        super().__init__(items)
        self.rest = rest


Value: TypeAlias = bool | int | float | complex | str | list[Json] | dict[str, Json] | Nothing


class Element:
    """The current member of a list or an object in a `range`.

    Go keeps it wrapped in an interface, with two visible effects: a field of a null is an error, and it cannot be
    an index of `slice`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


Slot: TypeAlias = Value | Element
"""The content of dot or of a variable."""

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    Int: "int",
    Uint8: "uint8",
    float: "float64",
    complex: "complex128",
    str: "string",
    list: "[]interface {}",
    Slice: "[]interface {}",
    dict: "map[string]interface {}",
    Nothing: "nil",
}


def type_name(value: Value) -> str:
    """Return the name of the type in Go."""
    return _TYPE_NAMES[type(value)]


def describe_type(value: Value | None) -> str:
    """Return the type in terms of JSON."""
    if value is None or isinstance(value, Nothing):
        return "null"
    if isinstance(value, str | bool):
        return "a string" if isinstance(value, str) else "a boolean"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "a number"


def to_value(value: Value | None) -> Value:
    """Return a member of a document as a value."""
    if value is None:
        return Nothing.NIL
    if type(value) is int and not MIN_INT64 <= value <= MAX_INT64:
        return as_float(value)
    return value


def unwrap(slot: Slot) -> Value:
    """Return the value of dot or of a variable, as a pipeline passes it on."""
    return slot.value if isinstance(slot, Element) else slot


def as_float(number: int) -> float:
    """Return the nearest float64, which may be infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


_SURROGATE = re.compile("[\ud800-\udfff]")


def to_bytes(text: str) -> bytes:
    """Encode a string that may contain lone bytes."""
    return text.encode("utf-8", "surrogateescape")


def from_bytes(octets: bytes) -> str:
    """Decode bytes; invalid ones become lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")


def merge_split_characters(text: str) -> str:
    """Return a concatenated string in which adjacent lone bytes that form a character become that character."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return from_bytes(to_bytes(text))


def replace_invalid_bytes(text: str) -> str:
    """Return a string for the outside: lone bytes are replaced, as Go's JSON encoder does."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", from_bytes(to_bytes(text)))

"""What a template computes with: JSON, and the few types that Go adds to it.

A JSON integer is an int64 and a plain `int` here; whatever does not fit, and every other number, is a float64.
Constants, lengths and positions are Go's `int`, bytes of a string its `uint8`: the difference shows in `%T` and in
error marks. Go's strings are bytes that are mostly UTF-8, and `slice` may cut a character in two: such bytes are
kept as lone surrogates (`surrogateescape`) until the text is finished.

Go has two kinds of nothing. A null found in a list or an object is an interface that holds nil, and asking it for
a field fails. Once a pipeline has passed it on it is no value at all, like what is absent, and a field of that is
nothing again. Here the first is None, and exists only inside documents; the second is `Nothing`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias

from sentinel.core.json import Json

LEAST_INT64: Final = -(2**63)
GREATEST_INT64: Final = 2**63 - 1


class Nothing(Enum):
    """No value."""

    NIL = "nil"
    """A null, or `nil` itself."""
    ABSENT = "absent"
    """An object was asked for a key that it does not have; printing it is worth a warning."""

    def __bool__(self) -> bool:
        return False


class Int(int):
    """Go's `int`."""

    __slots__ = ()


class Uint8(int):
    """A byte."""

    __slots__ = ()


class Window(list[Json]):
    """A part of a list. As in Go it can be sliced again beyond its end, as far as the list that it is part of."""

    __slots__ = ("beyond",)

    def __init__(self, items: Iterable[Json], beyond: list[Json]) -> None:
        super().__init__(items)
        self.beyond = beyond


Value: TypeAlias = bool | int | float | complex | str | list[Json] | dict[str, Json] | Nothing


class Element:
    """A member of a list or an object while `range` is at it.

    Go keeps it wrapped in its interface, which can be told: a null in it has no fields, and it is no index for
    `slice`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


Slot: TypeAlias = Value | Element
"""What dot or a variable may hold."""

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    Int: "int",
    Uint8: "uint8",
    float: "float64",
    complex: "complex128",
    str: "string",
    list: "[]interface {}",
    Window: "[]interface {}",
    dict: "map[string]interface {}",
    Nothing: "nil",
}


def type_name(value: Value) -> str:
    """The type as Go names it."""
    return _TYPE_NAMES[type(value)]


def described(value: Value | None) -> str:
    """What it is, in the words of somebody who writes JSON."""
    if value is None or isinstance(value, Nothing):
        return "null"
    if isinstance(value, str | bool):
        return "a string" if isinstance(value, str) else "a boolean"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "a number"


def taken(value: Value | None) -> Value:
    """A member of a document as a value of its own."""
    if value is None:
        return Nothing.NIL
    if type(value) is int and not LEAST_INT64 <= value <= GREATEST_INT64:
        return as_float(value)
    return value


def unwrapped(slot: Slot) -> Value:
    """The value of dot or a variable, as a pipeline passes it on."""
    return slot.value if isinstance(slot, Element) else slot


def as_float(number: int) -> float:
    """The nearest float64; beyond all of them, an infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


_SURROGATE = re.compile("[\ud800-\udfff]")


def encoded(text: str) -> bytes:
    """The bytes of a string."""
    return text.encode("utf-8", "surrogateescape")


def decoded(octets: bytes) -> str:
    """The string with these bytes."""
    return octets.decode("utf-8", "surrogateescape")


def mended(text: str) -> str:
    """A string that was put together of parts: bytes that met and now make a character become that character."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return decoded(encoded(text))


def finished(text: str) -> str:
    """A string that leaves the template: a byte that is no character is replaced, as Go's JSON does."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", decoded(encoded(text)))

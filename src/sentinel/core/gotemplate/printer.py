"""Values printed as Go's `fmt` prints them with %v, and what `print` and `println` make of several.

Consumers of the events were written against Go, where a list is `[a b]`, an object `map[a:1 b:2]` with its keys
in order, and a float has its shortest digits, with an exponent below 1e-04 and from 1e+06 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from sentinel.core.gotemplate.errors import Trouble
from sentinel.core.gotemplate.floats import format_float, shortest
from sentinel.core.gotemplate.values import Nothing, Value, mended, taken
from sentinel.core.json import Json

LONGEST_TEXT: Final = 2**20
"""How long a text may become, in characters: brokers refuse messages that are much larger."""


class Style(msgspec.Struct, frozen=True):
    """How lists and objects are written."""

    list_opens: str
    map_opens: str
    separates: str
    list_closes: str
    map_closes: str
    null: str


PLAIN: Final = Style("[", "map[", " ", "]", "]", "<nil>")
GO_SYNTAX: Final = Style("[]interface {}{", "map[string]interface {}{", ", ", "}", "}", "interface {}(nil)")


class Output:
    """Text that grows, but not without bounds."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Adds a part."""
        self._size += len(text)
        if self._size > LONGEST_TEXT:
            raise Trouble(f"stopped: the text grew beyond {LONGEST_TEXT} characters")
        self._parts.append(text)

    def text(self) -> str:
        """All parts."""
        return "".join(self._parts)


def go_string(value: Value | Json) -> str:
    """The value as `%v` prints it; null is `<nil>`. Raises `Trouble` where the text would be too long."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return laid_out(value, go_string, PLAIN)
    if value is None or isinstance(value, Nothing):
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        number = taken(value)
        return str(value) if number is value else go_string(number)
    if isinstance(value, complex):
        return f"({_float(value.real)}{'' if math.copysign(1, value.imag) < 0 else '+'}{_float(value.imag)}i)"
    return _float(value)


def _float(number: float) -> str:
    return shortest(number) if math.isfinite(number) else format_float(number, "g", None)


class _Mark(str):
    """Punctuation among the values that are still to be printed."""

    __slots__ = ()


def laid_out(value: list[Json] | dict[str, Json], leaf: Callable[[Value], str], style: Style) -> str:
    """A list or an object, its members printed by `leaf`.

    What is still to be printed waits on a list of our own: a document may be nested deeper than Python's stack.
    """
    out = Output()
    write = out.write
    waiting: list[Json] = [value]
    between = _Mark(style.separates)
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Mark):
            write(item)
        elif isinstance(item, dict):
            write(style.map_opens)
            waiting.append(_Mark(style.map_closes))
            for index, key in enumerate(sorted(item, reverse=True)):
                if index:
                    waiting.append(between)
                waiting += (item[key], _Mark(":"), key)
        elif isinstance(item, list):
            write(style.list_opens)
            waiting.append(_Mark(style.list_closes))
            for index, member in enumerate(reversed(item)):
                if index:
                    waiting.append(between)
                waiting.append(member)
        elif item is None:
            write(style.null)
        else:
            write(leaf(taken(item)))
    return out.text()


def sprint(values: Iterable[Value]) -> str:
    """All values, with a space between two of which neither is a string."""
    out = Output()
    follows_string = True
    for value in values:
        is_string = isinstance(value, str)
        if not is_string and not follows_string:
            out.write(" ")
        out.write(go_string(value))
        follows_string = is_string
    return mended(out.text())


def sprintln(values: Iterable[Value]) -> str:
    """All values, with a space between any two, and a line's end."""
    out = Output()
    for index, value in enumerate(values):
        if index:
            out.write(" ")
        out.write(go_string(value))
    out.write("\n")
    return mended(out.text())

"""Print values as Go's `fmt` does with `%v`, and implement `print` and `println`.

Consumers of the events expect Go's format: a list is `[a b]`, an object is `map[a:1 b:2]` with sorted keys, and a
float has its shortest digits, with an exponent below 1e-04 and from 1e+06 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.floats import format_float, shortest
from sentinel.core.gotemplate.values import Nothing, Value, merge_split_characters, to_value
from sentinel.core.json import Json

MAX_TEXT_LENGTH: Final = 2**20
"""The maximum number of characters of a text. Brokers reject messages that are much larger."""


class Style(msgspec.Struct, frozen=True):
    """The punctuation of lists and objects."""

    list_opens: str
    map_opens: str
    separates: str
    list_closes: str
    map_closes: str
    null: str


PLAIN: Final = Style("[", "map[", " ", "]", "]", "<nil>")
GO_SYNTAX: Final = Style("[]interface {}{", "map[string]interface {}{", ", ", "}", "}", "interface {}(nil)")


class OutputBuffer:
    """A text buffer with a size limit."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_TEXT_LENGTH:
            raise RenderError(f"stopped: the text grew beyond {MAX_TEXT_LENGTH} characters")
        self._parts.append(text)

    def text(self) -> str:
        return "".join(self._parts)


def go_string(value: Value | Json) -> str:
    """Return the value as `%v` prints it; `<nil>` for null. Raises `RenderError` if the text is too long."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return format_nested(value, go_string, PLAIN)
    if value is None or isinstance(value, Nothing):
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        number = to_value(value)
        return str(value) if number is value else go_string(number)
    if isinstance(value, complex):
        return f"({_float(value.real)}{'' if math.copysign(1, value.imag) < 0 else '+'}{_float(value.imag)}i)"
    return _float(value)


def _float(number: float) -> str:
    return shortest(number) if math.isfinite(number) else format_float(number, "g", None)


class _Mark(str):
    """Punctuation among the values on the stack."""

    __slots__ = ()


def format_nested(value: list[Json] | dict[str, Json], leaf: Callable[[Value], str], style: Style) -> str:
    """Return a list or an object as text. `leaf` prints its members.

    It uses its own stack, because a document may be nested deeper than Python's stack.
    """
    out = OutputBuffer()
    write = out.write
    stack: list[Json] = [value]
    between = _Mark(style.separates)
    while stack:
        item = stack.pop()
        if isinstance(item, _Mark):
            write(item)
        elif isinstance(item, dict):
            write(style.map_opens)
            stack.append(_Mark(style.map_closes))
            for index, key in enumerate(sorted(item, reverse=True)):
                if index:
                    stack.append(between)
                stack += (item[key], _Mark(":"), key)
        elif isinstance(item, list):
            write(style.list_opens)
            stack.append(_Mark(style.list_closes))
            for index, member in enumerate(reversed(item)):
                if index:
                    stack.append(between)
                stack.append(member)
        elif item is None:
            write(style.null)
        else:
            write(leaf(to_value(item)))
    return out.text()


def sprint(values: Iterable[Value]) -> str:
    """Join values, with a space between two values if neither is a string."""
    out = OutputBuffer()
    follows_string = True
    for value in values:
        is_string = isinstance(value, str)
        if not is_string and not follows_string:
            out.write(" ")
        out.write(go_string(value))
        follows_string = is_string
    return merge_split_characters(out.text())


def sprintln(values: Iterable[Value]) -> str:
    """Join values with spaces, and add a newline."""
    out = OutputBuffer()
    for index, value in enumerate(values):
        if index:
            out.write(" ")
        out.write(go_string(value))
    out.write("\n")
    return merge_split_characters(out.text())

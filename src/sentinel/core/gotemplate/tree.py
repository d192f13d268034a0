"""The syntax tree of a template. Every node has its offset in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.gotemplate.values import Int


class Dot(msgspec.Struct, frozen=True):
    """`.`"""

    at: int


class Nil(msgspec.Struct, frozen=True):
    """`nil`"""

    at: int


class Bool(msgspec.Struct, frozen=True):
    """`true`, `false`"""

    at: int
    value: bool


class Number(msgspec.Struct, frozen=True):
    """`1`, `0x1p-2`, `'a'`, `2i`"""

    at: int
    text: str
    value: Int | float | complex | None
    """None for an integer that does not fit into an `int`."""


class String(msgspec.Struct, frozen=True):
    """`"a"`, or a raw string in backquotes."""

    at: int
    text: str
    value: str


class Field(msgspec.Struct, frozen=True):
    """`.a.b`"""

    at: int
    names: tuple[str, ...]


class Variable(msgspec.Struct, frozen=True):
    """`$a.b`"""

    at: int
    name: str
    names: tuple[str, ...] = ()


class Function(msgspec.Struct, frozen=True):
    """`len`"""

    at: int
    name: str


class Chain(msgspec.Struct, frozen=True):
    """`(pipeline).a.b`"""

    at: int
    inner: Pipe | Function
    names: tuple[str, ...]


class Command(msgspec.Struct, frozen=True):
    """A word and its arguments."""

    at: int
    words: tuple[Word, ...]


class Pipe(msgspec.Struct, frozen=True):
    """Commands. Each gets the result of the one before. The last result may be stored in variables."""

    at: int
    variables: tuple[str, ...]
    is_assignment: bool
    """Whether the variables are assigned rather than declared."""
    commands: tuple[Command, ...]


Term: TypeAlias = Dot | Nil | Bool | Number | String | Field | Variable | Function | Pipe
Word: TypeAlias = Term | Chain


class Text(msgspec.Struct, frozen=True):
    """Literal text."""

    at: int
    text: str


class Action(msgspec.Struct, frozen=True):
    """`{{pipeline}}`"""

    at: int
    pipe: Pipe


class Branch(msgspec.Struct, frozen=True):
    """`if` or `with`, with every `else if` or `else with`."""

    at: int
    sets_dot: bool
    arms: tuple[tuple[Pipe, Body], ...]
    otherwise: Body


class Range(msgspec.Struct, frozen=True):
    """`range`"""

    at: int
    pipe: Pipe
    body: Body
    otherwise: Body


class Invoke(msgspec.Struct, frozen=True):
    """`template`, or the call of a `block`."""

    at: int
    name: str
    pipe: Pipe | None


class Break(msgspec.Struct, frozen=True):
    """`break`"""

    at: int


class Continue(msgspec.Struct, frozen=True):
    """`continue`"""

    at: int


Statement: TypeAlias = Text | Action | Branch | Range | Invoke | Break | Continue
Body: TypeAlias = tuple[Statement, ...]
Templates: TypeAlias = Mapping[str, Body]
"""The bodies of all templates of a source by name."""


def describe(word: Word) -> str:
    """Return a word that cannot be called, for a message."""
    match word:
        case Dot():
            return "."
        case Nil():
            return "nil"
        case Bool(value=value):
            return "true" if value else "false"
        case Number(text=text) | String(text=text):
            return text
        case Variable(name=name):
            return name
        case _:
            return "(...)"

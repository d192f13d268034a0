"""The syntax tree of a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.gotemplate.values import Int


class Node(msgspec.Struct, frozen=True):
    """A node of the tree."""

    at: int
    """Its offset in the source."""


class Dot(Node, frozen=True):
    """`.`"""


class Nil(Node, frozen=True):
    """`nil`"""


class Bool(Node, frozen=True):
    """`true`, `false`"""

    value: bool


class Number(Node, frozen=True):
    """`1`, `0x1p-2`, `'a'`, `2i`"""

    text: str
    value: Int | float | complex | None
    """None for an integer that does not fit into an `int`."""


class String(Node, frozen=True):
    """`"a"`, or a raw string in backquotes."""

    text: str
    value: str


class Field(Node, frozen=True):
    """`.a.b`"""

    names: tuple[str, ...]


class Variable(Node, frozen=True):
    """`$a.b`"""

    name: str
    names: tuple[str, ...] = ()


class Function(Node, frozen=True):
    """`len`"""

    name: str


class Chain(Node, frozen=True):
    """`(pipeline).a.b`"""

    inner: Pipe | Function
    names: tuple[str, ...]


class Command(Node, frozen=True):
    """A word and its arguments."""

    words: tuple[Word, ...]


class Pipe(Node, frozen=True):
    """Commands. Each gets the result of the one before. The last result may be stored in variables."""

    variables: tuple[str, ...]
    is_assignment: bool
    """Whether the variables are assigned rather than declared."""
    commands: tuple[Command, ...]


Term: TypeAlias = Dot | Nil | Bool | Number | String | Field | Variable | Function | Pipe
Word: TypeAlias = Term | Chain


class Text(Node, frozen=True):
    """Literal text."""

    text: str


class Action(Node, frozen=True):
    """`{{pipeline}}`"""

    pipe: Pipe


class Branch(Node, frozen=True):
    """`if` or `with`, with every `else if` or `else with`."""

    sets_dot: bool
    arms: tuple[tuple[Pipe, Body], ...]
    otherwise: Body


class Range(Node, frozen=True):
    """`range`"""

    pipe: Pipe
    body: Body
    otherwise: Body


class Invoke(Node, frozen=True):
    """`template`, or the call of a `block`."""

    name: str
    pipe: Pipe | None


class Break(Node, frozen=True):
    """`break`"""


class Continue(Node, frozen=True):
    """`continue`"""


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

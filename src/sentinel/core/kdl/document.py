"""A KDL document as a tree in which everything knows its line and column.

Lines and columns count from one, columns in code points. The structs are small, and not tracked by the garbage
collector, because a file of two megabytes may have a million nodes; none of them can be part of a cycle.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Scalar: TypeAlias = None | bool | int | float | str


class Place(msgspec.Struct, frozen=True, gc=False):
    """A position in the file."""

    line: int
    column: int


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """A type annotation, such as `(u8)`."""

    name: str
    line: int = 0
    column: int = 0
    """The position of its opening parenthesis."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """An argument, or the value of a property."""

    value: Scalar
    type: Annotation | None = None
    line: int = 0
    column: int = 0
    literal: str = ""
    """The number as written, if it was not written the way Python prints it: `0x1F`, `1_000`, `1e400`."""


class Property(msgspec.Struct, frozen=True, gc=False):
    """A key with its value."""

    name: str
    value: Value
    line: int = 0
    column: int = 0


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node. Its line and column are those of its name."""

    name: str
    arguments: tuple[Value, ...] = ()
    properties: tuple[Property, ...] = ()
    """The properties as written: a repeated property occurs repeatedly. The last one counts."""
    children: tuple[Node, ...] = ()
    type: Annotation | None = None
    line: int = 0
    column: int = 0
    block: Place | None = None
    """The opening brace of the children."""
    is_damaged: bool = False
    """Whether something of this node could not be read, so that nobody can tell what it lacks."""

    def property(self, name: str) -> Property | None:
        """Return the property of this name that counts."""
        for candidate in reversed(self.properties):
            if candidate.name == name:
                return candidate
        return None


class Document(msgspec.Struct, frozen=True, gc=False):
    """The nodes of a file."""

    nodes: tuple[Node, ...] = ()
    is_damaged: bool = False
    """Whether a top-level node could not be read."""
    is_misnested: bool = False
    """Whether braces do not match, so that nobody can tell in which block a node belongs."""

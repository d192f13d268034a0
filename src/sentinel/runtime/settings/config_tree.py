"""A configuration as a tree of texts, each of which knows where it was written.

Nothing is interpreted yet: the setting that a text belongs to says what it means. Every source of settings yields
such a tree, within the same limits, so that nothing else depends on the source.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from sentinel.runtime.settings.report import Origin, SettingsProblem, quoted

MAX_VALUES: Final = 10_000
"""Keys count as values, and so do aliases wherever they are used: nested aliases multiply."""
MAX_DEPTH: Final = 64
"""Levels of mappings and lists within each other."""

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class ScalarNode(msgspec.Struct, frozen=True):
    """A text, as written."""

    text: str
    at: Origin
    is_plain: bool = True
    """Not quoted, so that `null` means nothing rather than the word."""

    @property
    def is_null(self) -> bool:
        """Whether a key was written without a value."""
        return self.is_plain and self.text in _NULLS


class ListNode(msgspec.Struct, frozen=True):
    """Values in order."""

    items: tuple[Node, ...]
    at: Origin


class Member(msgspec.Struct, frozen=True):
    """A key of a table and its value."""

    key: str
    at: Origin
    """Where the key stands; the value knows its own place."""
    value: Node


class MappingNode(msgspec.Struct, frozen=True):
    """Values by name, in the order in which they were written."""

    members: tuple[Member, ...]
    at: Origin

    def get(self, key: str) -> Member | None:
        """The member of this name."""
        return next((member for member in self.members if member.key == key), None)

    def put(self, key: str, value: Node, at: Origin) -> MappingNode:
        """The same table with this member set, in its old place where it had one."""
        new = Member(key, at, value)
        if self.get(key) is None:
            return MappingNode((*self.members, new), self.at)
        return MappingNode(tuple(new if member.key == key else member for member in self.members), self.at)


Node: TypeAlias = ScalarNode | ListNode | MappingNode


class ParsedSource(msgspec.Struct, frozen=True):
    """One source of settings: what it says, and what is wrong with it."""

    root: MappingNode | None
    """None where the source could not be read; the problems say why. An empty source is an empty table."""
    at: Origin
    """What a missing key is missing from."""
    problems: tuple[SettingsProblem, ...] = ()

    @classmethod
    def of(cls, root: Node | None, at: Origin, problems: tuple[SettingsProblem, ...] = ()) -> ParsedSource:
        """The source with this document, which has to be a mapping, or empty."""
        if root is None or (isinstance(root, ScalarNode) and root.is_null):
            return cls(MappingNode((), at), at, problems)
        if isinstance(root, MappingNode):
            return cls(root, at, problems)
        # Do not show the text: if the wrong file was named, it may be a token.
        message = f"expected a mapping of settings, got {'a list' if isinstance(root, ListNode) else 'text'}"
        return cls(None, at, (*problems, SettingsProblem.at(root.at, "", message)))


def describe_node(node: Node) -> str:
    """What a message says was found."""
    match node:
        case MappingNode():
            return "a mapping"
        case ListNode():
            return "a list"
        case ScalarNode():
            return "nothing" if node.is_null else quoted(node.text)


def join(path: str, key: str) -> str:
    """The path of a key within what has this path."""
    return f"{path}.{key}" if path else key

"""A configuration as a tree of texts with their positions.

Nothing is interpreted yet: the setting that a text belongs to decides what it means. Every source of settings is
read into such a tree, within the same limits.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from sentinel.runtime.settings.report import Origin, SettingsProblem, quoted

MAX_VALUES: Final = 10_000
"""Keys count as values. An alias counts at every use, because nested aliases multiply."""
MAX_DEPTH: Final = 64
"""Nested mappings and lists."""

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class ScalarNode(msgspec.Struct, frozen=True):
    """A text, as written."""

    text: str
    at: Origin
    is_plain: bool = True
    """Whether it is unquoted, so that `null` means null and not the word."""

    @property
    def is_null(self) -> bool:
        """Whether a key was written without a value."""
        return self.is_plain and self.text in _NULLS


class ListNode(msgspec.Struct, frozen=True):
    """A list of nodes."""

    items: tuple[Node, ...]
    at: Origin


class MappingNode(msgspec.Struct, frozen=True):
    """Members in the order in which they were written."""

    members: tuple[Member, ...]
    at: Origin

    def get(self, key: str) -> Member | None:
        """Return the member with this key."""
        return next((member for member in self.members if member.key == key), None)

    def with_member(self, key: str, value: Node, at: Origin) -> MappingNode:
        """Return the mapping with this member replaced in place, or appended."""
        new = Member(key, at, value)
        if self.get(key) is None:
            return MappingNode((*self.members, new), self.at)
        return MappingNode(tuple(new if member.key == key else member for member in self.members), self.at)


class Member(msgspec.Struct, frozen=True):
    """A key of a mapping and its value."""

    key: str
    at: Origin
    """The position of the key. The value has its own."""
    value: Node


Node: TypeAlias = ScalarNode | ListNode | MappingNode


class ParsedSource(msgspec.Struct, frozen=True):
    """One source of settings: its content and its problems."""

    root: MappingNode | None
    """None if the source could not be read; the problems say why. An empty source is an empty mapping."""
    at: Origin
    """The position to report for missing keys."""
    problems: tuple[SettingsProblem, ...] = ()

    @classmethod
    def of(cls, root: Node | None, at: Origin, problems: tuple[SettingsProblem, ...] = ()) -> ParsedSource:
        """Return a source with this root, which has to be a mapping or empty."""
        if root is None or (isinstance(root, ScalarNode) and root.is_null):
            return cls(MappingNode((), at), at, problems)
        if isinstance(root, MappingNode):
            return cls(root, at, problems)
        # Do not show the text: if the path was wrong, it may be a token.
        message = f"expected a mapping of settings, got {'a list' if isinstance(root, ListNode) else 'text'}"
        return cls(None, at, (*problems, SettingsProblem.at(root.at, "", message)))


def describe_node(node: Node) -> str:
    """Describe a node for "got ..." in a message."""
    match node:
        case ScalarNode():
            return "nothing" if node.is_null else quoted(node.text)
        case ListNode():
            return "a list"
        case MappingNode():
            return "a mapping"


def join(path: str, key: str) -> str:
    """Return the path of a key in the mapping at `path`."""
    return f"{path}.{key}" if path else key

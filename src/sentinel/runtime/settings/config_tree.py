"""A configuration as a tree of texts with their positions.

Nothing is interpreted yet: the setting that a text belongs to decides what it means. Every source of settings is
read into such a tree, within the same limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.runtime.settings.report import Origin, SettingsProblem, quoted

MAX_VALUES: Final = 10_000
"""Keys count as values. An alias counts at every use, because nested aliases multiply."""
MAX_DEPTH: Final = 64
"""Nested mappings and lists."""

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))

# How kubectl's YAML library (go-yaml 2) reads plain scalars.
_BOOLEAN = re.compile(r"y|Y|n|N|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE")
_NUMBER = re.compile(
    r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*\.?[0-9_]*([eE][-+]?[0-9]+)?"
    r"|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)


class JsonType(StrEnum):
    """The type of a single value in JSON, named as in JSON Schema. Integers are numbers."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"


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

    @property
    def json_type(self) -> JsonType:
        """The type that Kubernetes' tools give to this value, which is not null. They follow YAML 1.1."""
        if self.is_plain and _BOOLEAN.fullmatch(self.text):
            return JsonType.BOOLEAN
        return JsonType.NUMBER if self.is_plain and _NUMBER.fullmatch(self.text) else JsonType.STRING


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


def to_json(node: Node, read_scalar: Callable[[ScalarNode], Json]) -> Json:
    """Return a node as JSON. `read_scalar` returns the value of a text that is not null."""
    match node:
        case MappingNode():
            return {member.key: to_json(member.value, read_scalar) for member in node.members}
        case ListNode():
            return [to_json(item, read_scalar) for item in node.items]
        case ScalarNode():
            return None if node.is_null else read_scalar(node)


def locate(node: Node, path: str) -> Origin:
    """Return the position of the value at a path such as `spec.ports[0]`, or of the closest value around it."""
    return _locate(node, path)[1]


def _locate(node: Node, path: str) -> tuple[int, Origin]:
    """Return also how much of the path is not in the tree.

    The path is matched against the keys instead of being split, because keys may contain dots.
    """
    children: Iterator[tuple[str, Node]] = iter(())
    if isinstance(node, MappingNode):
        children = ((member.key, member.value) for member in node.members)
    elif isinstance(node, ListNode):
        children = ((f"[{index}]", item) for index, item in enumerate(node.items))
    best = (len(path), node.at)
    for key, child in children:
        rest = path.removeprefix(key)
        if path.startswith(key) and rest[:1] in ("", ".", "["):
            best = min(best, _locate(child, rest.removeprefix(".")), key=lambda found: found[0])
    return best


def join(path: str, key: str) -> str:
    """Return the path of a key in the mapping at `path`."""
    return f"{path}.{key}" if path else key

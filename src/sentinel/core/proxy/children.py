"""The values of nodes, as leniently as the real proxy reads them: what has another type counts as missing."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sentinel.core import kdl

MAX_SECONDS: Final = 365 * 24 * 3600
"""Longer durations are cut: they only mean that there is no limit."""


class Children:
    """The child nodes of a block, by name."""

    def __init__(self, nodes: tuple[kdl.Node, ...]) -> None:
        self.nodes = nodes

    def node(self, *names: str) -> kdl.Node | None:
        return next((node for node in self.nodes if node.name in names), None)

    def block(self, *names: str) -> Children:
        """Return the children of a block, none if it is missing."""
        node = self.node(*names)
        return Children(() if node is None else node.children)

    def entries(self, block: str, name: str) -> list[kdl.Node]:
        """Return the nodes of this name in all blocks of that name."""
        return [
            node for found in self.nodes if found.name == block for node in found.children if node.name == name
        ]

    def value(self, name: str) -> kdl.Scalar:
        node = self.node(name)
        return None if node is None else first(node)

    def text(self, name: str) -> str | None:
        value = self.value(name)
        return value if isinstance(value, str) else None

    def number(self, name: str, default: int) -> int:
        return as_number(self.value(name), default)

    def seconds(self, name: str, default: timedelta) -> timedelta:
        return timedelta(seconds=min(self.number(name, int(default.total_seconds())), MAX_SECONDS))

    def is_true(self, name: str, *, default: bool = False) -> bool:
        value = self.value(name)
        return value if isinstance(value, bool) else default


def first(node: kdl.Node) -> kdl.Scalar:
    return node.arguments[0].value if node.arguments else None


def as_number(value: kdl.Scalar, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def property_of(node: kdl.Node, name: str) -> kdl.Scalar:
    found = node.property(name)
    return None if found is None else found.value.value

"""The nodes of a block as the proxy looks them up: by name, and where a name repeats, the first."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.core import kdl
from sentinel.core.proxy.schema import Row, When


class Block:
    """The children of a node, or the nodes of the document."""

    def __init__(self, nodes: Sequence[kdl.Node], row: Row, *, owner: kdl.Node | None, is_damaged: bool) -> None:
        self.nodes = nodes
        self.row = row
        self.owner = owner
        """The node whose block this is; None for the document."""
        self.is_damaged = is_damaged
        """Whether something of it could not be read, so that nothing can be called missing."""
        self._by_name: dict[str, kdl.Node] = {}
        for node in nodes:
            self._by_name.setdefault(node.name, node)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def node(self, name: str) -> kdl.Node | None:
        """Return the first node of this name."""
        return self._by_name.get(name)

    def text(self, name: str) -> str | None:
        """Return the first argument of a node in lower case, or the default, if that is a string."""
        node = self._by_name.get(name)
        if node is None:
            default = self.row.children[name].default
            return default if isinstance(default, str) else None
        first = node.arguments[0].value if node.arguments else None
        return first.lower() if isinstance(first, str) else None

    def holds(self, when: When | None) -> bool | None:
        """Whether a condition holds. None if there is none, or nobody can tell."""
        if when is None:
            return None
        text = self.text(when.sibling)
        sibling = self.row.children[when.sibling]
        if text is None or sibling.arguments[0].type.fault(text) is not None:
            return None
        return text in when.values

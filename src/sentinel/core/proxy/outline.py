"""The outline of a configuration: its listeners, routes, upstreams, filters and agents, wherever they are defined.

They are defined at the top level, in a namespace, or in a service of a namespace. Everything that looks for them
finds them here. Nothing is judged: what does not fit the schema is skipped or returned as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.kdl import Document, Node, Place, Value


class Kind(StrEnum):
    """What is defined with an id."""

    LISTENER = "listener"
    ROUTE = "route"
    UPSTREAM = "upstream"
    FILTER = "filter"
    AGENT = "agent"


KIND_OF_BLOCK: Final = {f"{kind}s": kind for kind in Kind}
"""By the name of the block that has the definitions: `listeners`, `routes` …"""

_SCOPES: Final = {"": "namespace", "namespace": "service"}
"""Which scopes a scope may have inside of it. The file itself has no name."""


class Definition(msgspec.Struct, frozen=True):
    """A listener, route, upstream, filter or agent."""

    kind: Kind
    id: str
    """Empty if it has none: the listener of a service, or an invalid one."""
    node: Node
    scope: tuple[str, ...] = ()
    """The namespace and the service that it belongs to."""


class TlsBlock(msgspec.Struct, frozen=True):
    """A place for a certificate and its key: the `tls` of a listener or an upstream, or an `sni` of a listener."""

    owner: Definition
    node: Node


def definitions(document: Document) -> Iterator[Definition]:
    """Return all definitions in the order in which they are written."""
    return _definitions(document.nodes, "", ())


def tls_blocks(document: Document) -> Iterator[TlsBlock]:
    """Return all places for certificates in the order in which they start."""
    for definition in definitions(document):
        if definition.kind not in (Kind.LISTENER, Kind.UPSTREAM):
            continue
        for tls in children(definition.node, "tls"):
            yield TlsBlock(definition, tls)
            if definition.kind is Kind.LISTENER:
                yield from (TlsBlock(definition, sni) for sni in children(tls, "sni"))


def children(node: Node, name: str) -> Iterator[Node]:
    """Return the children of this name."""
    return (child for child in node.children if child.name == name)


def child(node: Node, name: str) -> Node | None:
    """Return the first child of this name, which is the one that the proxy reads."""
    return next(children(node, name), None)


def text_argument(node: Node) -> Value | None:
    """Return the first argument if it is a text."""
    if node.arguments and isinstance(node.arguments[0].value, str):
        return node.arguments[0]
    return None


def id_of(node: Node) -> str:
    """Return the id of a definition or a scope; empty if it has none. A listener may have it as a child."""
    inner = children(node, "id") if node.name == Kind.LISTENER else ()
    found = (text_argument(candidate) for candidate in (node, *inner))
    return next((str(value.value) for value in found if value is not None), "")


def place_of(found: Node | Value) -> Place:
    """Return the position of a node or a value."""
    return Place(found.line, found.column)


def _definitions(nodes: tuple[Node, ...], level: str, scope: tuple[str, ...]) -> Iterator[Definition]:
    for node in nodes:
        kind = KIND_OF_BLOCK.get(node.name)
        if kind is not None:
            yield from (Definition(kind, id_of(each), each, scope) for each in children(node, kind))
        elif node.name == _SCOPES.get(level):
            yield from _definitions(node.children, node.name, (*scope, id_of(node)))
        elif level == "service" and node.name == Kind.LISTENER:
            yield Definition(Kind.LISTENER, id_of(node), node, scope)

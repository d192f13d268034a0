"""What is different between two versions of a configuration: as text, and as what changes for the proxy.

Comments, layout, the order of properties, and in which of several blocks of the same name something is defined
mean nothing to the proxy, so they are differences of the text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from sentinel.core import kdl
from sentinel.core.kdl import Document, Node
from sentinel.core.line_diff import unified_diff
from sentinel.core.proxy.outline import KIND_OF_BLOCK, Kind, definitions, id_of
from sentinel.core.proxy.schema import CURRENT

RESTART_BLOCKS: Final = frozenset(row.name for row in CURRENT.top.rows if row.needs_restart)
"""What the proxy does not read again when it reloads."""

_ALIASES: Final = {"server": "system", "version": "schema-version"}
_BLOCK_OF_KIND: Final = {kind: block for block, kind in KIND_OF_BLOCK.items()}


class Action(StrEnum):
    """What happened to something."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Change(msgspec.Struct, frozen=True):
    """A block that is different, or a definition in it."""

    action: Action
    block: str
    """`system`, `listeners`, `routes`, `namespace` …"""
    id: str | None = None
    """The id of the listener, route, upstream, filter or agent. None if the block itself differs, or its order."""
    scope: tuple[str, ...] = ()
    """The namespace and the service that it belongs to."""


class Difference(msgspec.Struct, frozen=True):
    """What is different between two versions."""

    diff: str
    """Unified; empty if the texts are equal."""
    changes: tuple[Change, ...] = ()
    """The changes that mean something to the proxy."""
    restart_required: bool = False
    """Whether reloading is not enough."""


_Key: TypeAlias = tuple[str, str | None, tuple[str, ...]]
"""Block, id and scope of a change."""


def compare(before: str, after: str, *, before_name: str = "before", after_name: str = "after") -> Difference:
    """Compare the texts of two versions. `api@1` and `api@2` are good names."""
    old, new = kdl.parse(before), kdl.parse(after)
    changes = changed_blocks(old.document, new.document)
    is_readable = old.is_valid and new.is_valid
    return Difference(
        diff=unified_diff(before, after, before_name=before_name, after_name=after_name),
        changes=changes,
        # Nobody can tell what changed in a text that is not valid.
        restart_required=needs_restart(changes) or (not is_readable and before != after),
    )


def changed_blocks(before: Document, after: Document) -> tuple[Change, ...]:
    """Return what changes for the proxy."""
    old, new = _meanings(before), _meanings(after)
    changes = [
        Change(Action.ADDED if key not in old else Action.CHANGED, *key)
        for key, meaning in new.items()
        if old.get(key) != meaning
    ]
    changes += (Change(Action.REMOVED, *key) for key in old if key not in new)
    changes += (Change(Action.CHANGED, "routes", None, scope) for scope in _reordered(before, after))
    return tuple(dict.fromkeys(changes))


def needs_restart(changes: Iterable[Change]) -> bool:
    """Whether the proxy has to be restarted for these changes."""
    return any(change.block in RESTART_BLOCKS for change in changes)


def _meanings(document: Document) -> Mapping[_Key, list[str]]:
    """Return what is defined, as texts that are equal if they mean the same."""
    found: dict[_Key, list[str]] = {}
    for key, meaning in (*_blocks(document.nodes, ()), *_definitions(document)):
        found.setdefault(key, []).append(meaning)
    return found


def _blocks(nodes: Iterable[Node], scope: tuple[str, ...]) -> Iterator[tuple[_Key, str]]:
    """Return the blocks without their definitions. A block that has nothing else is left out."""
    for node in nodes:
        name = _ALIASES.get(node.name, node.name) if not scope else node.name
        kind = KIND_OF_BLOCK.get(name)
        if kind is not None:
            rest = tuple(child for child in node.children if child.name != kind)
            if rest or node.arguments or node.properties:
                yield (name, None, scope), _meaning(msgspec.structs.replace(node, children=rest))
        elif name == ("service" if scope else "namespace") and len(scope) < 2:
            yield from _blocks(node.children, (*scope, id_of(node)))
            yield (name, None, (*scope, id_of(node))), _meaning(msgspec.structs.replace(node, children=()))
        elif not (len(scope) == 2 and name == Kind.LISTENER):
            yield (name, None, scope), _meaning(msgspec.structs.replace(node, name=name))


def _definitions(document: Document) -> Iterator[tuple[_Key, str]]:
    for each in definitions(document):
        yield (_BLOCK_OF_KIND[each.kind], each.id, each.scope), _meaning(each.node)


def _reordered(before: Document, after: Document) -> Iterator[tuple[str, ...]]:
    """Return the scopes in which the order of routes changes. It decides between two that are equally specific."""
    old, new = _route_ids(before), _route_ids(after)
    for scope, ids in new.items():
        common = set(ids) & set(old.get(scope, ()))
        if [each for each in ids if each in common] != [each for each in old.get(scope, ()) if each in common]:
            yield scope


def _route_ids(document: Document) -> dict[tuple[str, ...], dict[str, None]]:
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for each in definitions(document):
        if each.kind is Kind.ROUTE:
            found.setdefault(each.scope, {})[each.id] = None
    return found


def _meaning(node: Node) -> str:
    return kdl.print_node(_normal(node))


def _normal(node: Node) -> Node:
    """Return a node without what means nothing: overridden properties, their order, and how numbers look."""
    properties = {each.name: kdl.Property(each.name, _value(each.value)) for each in node.properties}
    return Node(
        name=node.name,
        arguments=tuple(map(_value, node.arguments)),
        properties=tuple(properties[name] for name in sorted(properties)),
        children=tuple(map(_normal, node.children)),
        type=node.type,
    )


def _value(value: kdl.Value) -> kdl.Value:
    return msgspec.structs.replace(value, literal="")

"""What the small proxy ignores of a valid document, so that it can say so in one line.

The rows of the schema say what it implements. Of some keys it implements only some values; these are listed here.
What has its default value anyway is not mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sentinel.core import kdl
from sentinel.core.proxy import path_pattern
from sentinel.core.proxy.children import first
from sentinel.core.proxy.forwarded_headers import UNCHANGEABLE
from sentinel.core.proxy.model import HealthCheckType
from sentinel.core.proxy.reading import LOAD_BALANCING_NAMES
from sentinel.core.proxy.schema import CURRENT, Row, Schema
from sentinel.core.proxy.schema.types import HEADER_NAME

_VALUES: Final = {
    "listeners.listener.protocol": frozenset(("http", "https")),
    "routes.route.builtin-handler": frozenset(
        ("status", "health", "metrics", "config", "upstreams", "not-found", "not_found")
    ),
    "upstreams.upstream.health-check.type": frozenset(kind.value for kind in HealthCheckType),
    "upstreams.upstream.load-balancing": LOAD_BALANCING_NAMES,
}


def unimplemented(document: kdl.Document, schema: Schema = CURRENT) -> tuple[str, ...]:
    """Return the paths of nodes that only the real proxy reads, such as `routes.route.filters`, each once."""
    return tuple(dict.fromkeys(_ignored(document.nodes, schema.top, "")))


def _ignored(nodes: tuple[kdl.Node, ...], parent: Row, path: str) -> Iterator[str]:
    for node in nodes:
        row = parent.children.get(node.name)
        if row is None or not row.is_read:  # the real proxy ignores it, too
            continue
        here = f"{path}{node.name}"
        if not row.implemented:
            if not _is_default(node, row):
                yield here
            continue
        if (value := _unimplemented_value(node, row, here)) is not None:
            yield f"{here} {kdl.print_value(kdl.Value(value))}"
            continue
        yield from _unchangeable_headers(node, row, here)
        yield from _ignored(node.children, row, f"{here}.")


def _unimplemented_value(node: kdl.Node, row: Row, path: str) -> str | None:
    """Return the value of a node, if it is one that the real proxy implements and the small one does not."""
    values = _VALUES.get(path)
    value = first(node)
    if not isinstance(value, str):
        return None
    if path.endswith(".path-regex"):
        return value if path_pattern.read(value) == path_pattern.PathPattern(None) else None
    if values is None or value.lower() in values:
        return None
    return value if row.arguments[0].type.fault(value) is None else None


def _unchangeable_headers(node: kdl.Node, row: Row, path: str) -> Iterator[str]:
    """Yield what a policy wants to change and the small proxy does not."""
    if row.open_names is HEADER_NAME and row.open_values is not None:
        is_rename = row.open_values.type is HEADER_NAME
        for each in node.children:
            names = (each.name, str(first(each))) if is_rename else (each.name,)
            if not UNCHANGEABLE.isdisjoint(name.lower() for name in names):
                yield f"{path}.{each.name}"
    elif row.arguments and row.arguments[0].type is HEADER_NAME and row.arguments[0].is_many:
        removed = (str(argument.value) for argument in node.arguments)
        yield from (f"{path} {kdl.print_name(name)}" for name in removed if name.lower() in UNCHANGEABLE)


def _is_default(node: kdl.Node, row: Row) -> bool:
    values = [argument.value for argument in node.arguments]
    return row.default is not None and values == [row.default] and type(values[0]) is type(row.default)

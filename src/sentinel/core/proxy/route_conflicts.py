"""Two routes that match the same requests with the same priority: nobody can tell which of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sentinel.core import kdl
from sentinel.core.kdl import Node
from sentinel.core.proxy.outline import Definition, Kind, child, definitions, place_of
from sentinel.core.proxy.problem import Problem, semantic_problem

PRIORITIES: Final = {"low": 10, "normal": 50, "high": 100, "critical": 1000}
"""The numbers that names stand for."""
DEFAULT_PRIORITY: Final = PRIORITIES["normal"]

_ARGUMENTS: Final = {
    "path": 1,
    "path-prefix": 1,
    "path-regex": 1,
    "host": 1,
    "header": 2,
    "method": 1,
    "query-param": 2,
}
"""The conditions that the proxy knows, and how many of their arguments it reads."""


def check(document: kdl.Document) -> Iterator[Problem]:
    """Return a problem for each route that is like an earlier one in the same namespace or service."""
    first: dict[object, Definition] = {}
    for route in definitions(document):
        if route.kind is not Kind.ROUTE:
            continue
        priority, matches = _priority(route.node), _matches(route.node)
        if priority is None or matches is None or (not matches and priority != PRIORITIES["low"]):
            # The schema reports these, and correcting them makes them different.
            continue
        earlier = first.setdefault((route.scope, priority, matches), route)
        if earlier is not route:
            yield _problem(route, earlier)


def _priority(route: Node) -> int | None:
    """Return the priority of a route, or None if it cannot be read."""
    node = child(route, "priority")
    if node is None:
        return DEFAULT_PRIORITY
    value = node.arguments[0].value if node.arguments else None
    if isinstance(value, str):
        return PRIORITIES.get(value.lower())
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _matches(route: Node) -> frozenset[tuple[str, ...]] | None:
    """Return what a route matches, or None if a part of it could not be read."""
    node = child(route, "matches")
    if route.is_damaged or (node is not None and any(each.is_damaged for each in (node, *node.children))):
        return None
    children = node.children if node is not None else ()
    return frozenset(_match(each) for each in children if each.name in _ARGUMENTS)


def _match(node: Node) -> tuple[str, ...]:
    """Return a condition such that two that mean the same are equal."""
    values = [kdl.print_value(kdl.Value(each.value)) for each in node.arguments[: _ARGUMENTS[node.name]]]
    if node.name == "method":
        values = [value.upper() for value in values]
    elif node.name in ("host", "header"):
        values[:1] = [value.lower() for value in values[:1]]
    return (node.name, *values)


def _problem(route: Definition, earlier: Definition) -> Problem:
    return semantic_problem(
        "same-matches",
        place_of(route.node),
        f"expected other matches or another priority than those of route {kdl.print_name(earlier.id)}"
        f" (line {earlier.node.line}), got the same for route {kdl.print_name(route.id)}",
        suggestion='add a match to one of them, or write another priority, such as priority "high"',
    )

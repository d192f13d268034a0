"""Builds configurations from the table of the schema: the smallest valid one that contains a given row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.problem import Problem, Severity
from sentinel.core.proxy.schema import CURRENT, Entry, Kind, Row
from sentinel.core.proxy.schema.types import Choice, ValueType
from sentinel.core.proxy.validation import check_schema

NEW, KNOWN = "new", "known"
"""The id of what is built, and of what every document has for references."""

_KNOWN = {
    "agents": 'agent "known" { unix-socket "/run/agent.sock" }',
    "filters": 'filter "known" { type "agent"; agent "known" }',
    "routes": 'route "known" { matches { path "/known" }; upstream "known"; filters "known" }',
    "upstreams": 'upstream "known" { target "known.internal:80" }',
}

Path = tuple[str, ...]


def check(text: str) -> list[Problem]:
    """Return the problems of level 2 of a text without faults of level 1."""
    parsed = kdl.parse(text)
    assert parsed.is_valid, parsed.problems
    return check_schema(parsed.document)


def errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def unique_rows() -> Iterator[tuple[Path, Row]]:
    """Yield every row once, although a block may be allowed in several places."""
    seen: set[Row] = set()
    for path, row in CURRENT.walk():
        if row not in seen:
            seen.add(row)
            yield path, row


def rows_on(path: Path) -> list[Row]:
    """Return the rows from the top level to the last name of a path."""
    found, row = [], CURRENT.top
    for name in path:
        row = row.children[name]
        found.append(row)
    return found


def value(entry: Entry) -> kdl.Value:
    """Return a good value."""
    if entry.refers_to is not None:
        return kdl.Value(KNOWN)
    return kdl.Value(NEW if entry.name == "id" else entry.type.example)


def node(row: Row) -> kdl.Node:
    """Return the smallest valid node of a row."""
    properties = [each for each in row.properties if each.is_required]
    if row.one_property:
        properties = list(row.properties[:1])
    arguments = row.arguments if row.value_name is None else row.arguments[:1]
    built = kdl.Node(
        row.name,
        arguments=tuple(value(each) for each in arguments if each.is_required or row.value_name is not None),
        properties=tuple(kdl.Property(each.name, value(each)) for each in properties),
        children=tuple(_children(row)),
    )
    return only(built, row)


def only(built: kdl.Node, row: Row) -> kdl.Node:
    """Return a node with the only value that the proxy accepts, if there is only one."""
    return built if row.only is None else msgspec.structs.replace(built, arguments=(kdl.Value(row.only),))


def _children(row: Row) -> Iterator[kdl.Node]:
    yield from (node(each) for each in row.rows if each.is_required)
    yield from (node(row.children[group[0]]) for group in row.at_least_one)
    if row.name == "matches":
        yield kdl.Node("path", (kdl.Value("/new"),))
    if row.defines is Kind.ROUTE:
        yield node(row.children["matches"])
        yield kdl.Node("builtin-handler", (kdl.Value("health"),))


def with_child(parent: kdl.Node, row: Row, child: kdl.Node, child_row: Row) -> kdl.Node:
    """Return a node with one more child: without what that replaces or excludes, with what it depends on."""
    rivals = {child.name}.union(*(group for group in row.at_most_one if child.name in group))
    needed = list(_needed(child_row, row))
    rivals |= {each.name for each in needed}
    kept = [each for each in parent.children if each.name not in rivals]
    return msgspec.structs.replace(parent, children=(*needed, *kept, child))


def _needed(child_row: Row, row: Row) -> Iterator[kdl.Node]:
    """Yield the sibling on which a row depends, and what that sibling requires."""
    if child_row.needs:
        yield node(row.children[child_row.needs[0]])
    if child_row.name == "client-auth":
        yield node(row.children["ca-file"])
    condition = child_row.read_when or child_row.required_when
    if condition is not None:
        sibling = node(row.children[condition.sibling])
        yield msgspec.structs.replace(sibling, arguments=(kdl.Value(condition.values[0]),))
        for each in row.demanded.values():
            is_needed = each.required_when is not None and condition.values[0] in each.required_when.values
            if is_needed and each is not child_row:
                yield node(each)


def document(path: Path, built: kdl.Node) -> str:
    """Return a valid configuration that contains this node at this path, but for what is wrong with the node."""
    rows = rows_on(path)
    for depth in range(len(rows) - 2, -1, -1):
        built = with_child(node(rows[depth]), rows[depth], built, rows[depth + 1])
    if "exports" in path:
        local = kdl.parse("".join(f"{name} {{ {_KNOWN[name]} }}\n" for name in ("agents", "filters", "upstreams")))
        built = msgspec.structs.replace(built, children=(*local.document.nodes, *built.children))
    top = kdl.parse(
        'system\nlisteners { listener "known" { address "127.0.0.1:9999" } }\nnamespace "known" { }\n'
        + "".join(f"{name} {{ {text} }}\n" for name, text in _KNOWN.items())
    ).document
    replaced = {"system", "server"} if path[0] in ("system", "server") else set[str]()
    kept = [each for each in top.nodes if each.name not in replaced]
    return kdl.print_document(kdl.Document((*kept, built)))


def bad_value(type_: ValueType) -> kdl.Value:
    """Return a value that no type of this kind accepts."""
    return kdl.Value("no-such-value") if isinstance(type_, Choice) else kdl.Value(None)

"""Draws configurations that follow the table of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import hypothesis.strategies as st
import msgspec

from sentinel.core import kdl
from sentinel.core.proxy import path_pattern
from sentinel.core.proxy.schema import CURRENT, Entry, Kind, Row, types
from tests.core.proxy import documents

WORDS = st.text("abcXYZ019 -_/.é", min_size=1, max_size=8)
RARE = st.integers(0, 5).map(lambda number: number == 0)
HOSTS = st.sampled_from(("localhost", "api.internal", "10.0.0.1", "[::1]", "a_b-c.example."))
PORTS = st.integers(1, 65_535)
PATTERN_TEXTS = st.text(r"ab/\.*+?{}()[]^$|<>:=!-12,dwpPuxzb&~i", min_size=1, max_size=10)
PATTERNS = PATTERN_TEXTS.filter(lambda text: isinstance(path_pattern.read(text), path_pattern.PathPattern))


class Builder:
    """Draws documents. Ids and addresses are counted, so that none is there twice.

    `files` has the values of nodes that name files, by the names of the nodes.
    """

    def __init__(self, draw: st.DrawFn, files: Mapping[str, str] | None = None) -> None:
        self._draw = draw
        self._files = files or {}
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def scalar(self, type_: types.ValueType) -> kdl.Scalar:
        match type_:
            case types.Text():
                return self._draw(WORDS)
            case types.Boolean():
                return self._draw(st.booleans())
            case types.Integer(minimum=minimum, maximum=maximum):
                return self._draw(st.integers(minimum, maximum))
            case types.Number(minimum=low, maximum=high):
                return self._draw(st.floats(low, min(high, 1e6)) | st.integers(int(low), int(min(high, 9))))
            case types.Choice(values=values, aliases=aliases, is_any_case=is_any_case):
                chosen = self._draw(st.sampled_from(values + aliases))
                return chosen.upper() if is_any_case and self._draw(RARE) else chosen
            case types.Address():
                return f"127.0.0.1:{self._next()}"
            case types.HostPort():
                return f"{self._draw(HOSTS)}:{self._draw(PORTS)}"
            case types.Either(types=alternatives):
                return self.scalar(self._draw(st.sampled_from(alternatives)))
            case types.Regex():
                return self._draw(PATTERNS)
            case types.Pattern() | types.Url():
                return type_.example
            case _:
                assert_never(type_)

    def value(self, entry: Entry, row: Row) -> kdl.Value:
        if entry.refers_to is not None:
            return kdl.Value(documents.KNOWN)
        if row.name in self._files:
            return kdl.Value(self._files[row.name])
        return kdl.Value(f"id-{self._next()}" if entry.name == "id" else self.scalar(entry.type))

    def node(self, row: Row) -> kdl.Node:
        arguments = [
            self.value(entry, row) for entry in row.arguments if entry.is_required or row.value_name is not None
        ]
        if row.arguments and row.arguments[-1].is_many:
            arguments += [self.value(row.arguments[-1], row) for _ in range(self._draw(st.integers(0, 2)))]
        properties = [entry for entry in row.properties if entry.is_required or self._draw(RARE)]
        if row.one_property:
            properties = [self._draw(st.sampled_from(row.properties))]
        return documents.only(
            kdl.Node(
                row.name,
                tuple(arguments),
                tuple(kdl.Property(entry.name, self.value(entry, row)) for entry in properties),
                tuple(self.children(row)),
            ),
            row,
        )

    def children(self, row: Row) -> list[kdl.Node]:
        names = {each.name for each in row.rows if self._draw(RARE) and each.name != "exports"}
        names |= {each.name for each in row.rows if each.is_required and not names.intersection(each.unless)}
        names |= {
            self._draw(st.sampled_from(group)) for group in row.at_least_one if not names.intersection(group)
        }
        if row.defines is Kind.ROUTE:
            names |= {"matches"}
        if row.name == "matches" and not names:
            names |= {"path"}
        for name in tuple(names):
            needed = row.children[name].needs
            if needed and not names.intersection(needed):
                names.add(self._draw(st.sampled_from(needed)))
        for group in row.at_most_one:
            names -= set([name for name in group if name in names][1:])
        nodes = {name: self.node(row.children[name]) for name in names}
        self._add_what_others_require(row, nodes)
        return self._draw(st.permutations(list(nodes.values())))

    def _add_what_others_require(self, row: Row, nodes: dict[str, kdl.Node]) -> None:
        for name, each in row.demanded.items():
            sibling = None if each.required_when is None else nodes.get(each.required_when.sibling)
            if sibling is None or each.required_when is None or name in nodes:
                continue
            if str(sibling.arguments[0].value).lower() in each.required_when.values:
                nodes[name] = self.node(each)


@st.composite
def configurations(
    draw: st.DrawFn, files: Mapping[str, str] | None = None, blocks: tuple[str, ...] = ()
) -> kdl.Document:
    """Draw a configuration with one of these blocks; without `blocks`, with any."""
    builder = Builder(draw, files)
    row = draw(
        st.sampled_from(
            [each for each in CURRENT.top.rows if each.is_read and (not blocks or each.name in blocks)]
        )
    )
    text = documents.document((row.name,), msgspec.structs.replace(documents.node(row), children=()))
    nodes = [node for node in kdl.parse(text).document.nodes if node.children or node.name == "namespace"]
    top = {"system"} if row.name != "server" else set[str]()
    return kdl.Document((*nodes, *(builder.node(CURRENT.top.children[name]) for name in top), builder.node(row)))

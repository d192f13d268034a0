"""Level 2: compares a document with the schema.

Reports everything at once, each mistake once: what could not be read is not missing, and an unknown node is not
looked into. Where the proxy silently uses something else, the message names it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy import rules
from sentinel.core.proxy.block import Block
from sentinel.core.proxy.entry_check import check_entries, check_open_node, check_value_name
from sentinel.core.proxy.findings import Code, Findings, shown, shown_name
from sentinel.core.proxy.listen_addresses import ListenAddresses
from sentinel.core.proxy.problem import Problem, Severity
from sentinel.core.proxy.references import References, Scope
from sentinel.core.proxy.schema import CURRENT, Entry, Kind, Repeated, Row, Schema
from sentinel.core.proxy.schema.filters import ANSWERING_TYPES
from sentinel.core.proxy.schema.row import walk
from sentinel.core.proxy.schema.types import Address

_MAX_LISTED: Final = 8


def check_schema(document: kdl.Document, schema: Schema = CURRENT) -> list[Problem]:
    """Return the problems of level 2 by position, a bounded number of them."""
    return _Validator(schema).check(document)


class _Place(msgspec.Struct, frozen=True):
    """Where a node is: whose names it sees, and in which block of upstreams or filters."""

    scope: Scope = ()
    block: int = 0
    is_export: bool = False


class _Validator:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._findings = Findings()
        self._references = References(self._findings)
        self._addresses = ListenAddresses(self._findings)
        self._metrics: tuple[kdl.Node, Block] | None = None
        self._routes: list[tuple[kdl.Node, Block]] = []
        self._answering_filters: set[str] = set()
        self._misplaced: set[str] = set()
        """Blocks of the top level that are meant by a name that the proxy does not know."""
        self._blocks = 0
        self._is_damaged = False
        self._is_misnested = False
        """Whether a node may be in the wrong block. Then only its own line can be judged."""

    def check(self, document: kdl.Document) -> list[Problem]:
        self._is_misnested = document.is_misnested
        top = Block(document.nodes, self._schema.top, owner=None, is_damaged=document.is_damaged)
        self._block(top, _Place())
        answering = frozenset(self._answering_filters)
        for route, block in self._routes:
            rules.check_route(route, block, self._findings, answering)
        if self._metrics is not None:
            self._addresses.check_metrics(*self._metrics)
        self._references.resolve()
        if not self._is_damaged:
            self._references.report_unused()
        found = self._findings.sorted()
        if self._is_misnested:  # what belongs into a block may stand before it
            return [problem for problem in found if problem.code != Code.IGNORED_ARGUMENT]
        return found

    def _block(self, block: Block, place: _Place) -> None:
        row = block.row
        if block.is_damaged:
            self._is_damaged = True
            self._references.doubt(_kinds_in(row))
        seen: dict[str, kdl.Node] = {}
        for node in block.nodes:
            self._is_damaged |= node.is_damaged
            child = row.children.get(node.name)
            if child is None:
                self._unknown(node, block)
                continue
            first = seen.setdefault(node.name, node)
            if first is not node and child.repeated is not Repeated.ALL and not self._is_misnested:
                self._repeated(node, child, first)
            self._node(node, child, block, place)
        if not block.is_damaged:
            self._missing(block)
        if not self._is_misnested:
            for group in row.at_most_one:
                self._conflict(group, seen, row)

    def _node(self, node: kdl.Node, row: Row, block: Block, place: _Place) -> None:
        if not row.is_read:
            self._unread(node, row, block)
            return
        if row.unread_block is not None and node.children and not node.arguments:
            message = f"expected {row.unread_block}, got a block, which the proxy never reads; it uses "
            self._findings.warning(
                Code.IGNORED_KEY, node, message + shown(row.default), f"write {row.unread_block}"
            )
            return
        if row.read_when is not None and block.holds(row.read_when) is False and not self._is_misnested:
            sibling, values = row.read_when.sibling, " or ".join(row.read_when.values)
            message = f"expected {row.name} only where {sibling} is {values}; the proxy ignores it here"
            self._findings.warning(Code.IGNORED_KEY, node, message, "remove it")
            return
        if row.is_deprecated:
            message = f"expected {row.instead}, got its former name {row.name}, which the proxy still reads"
            self._findings.warning(Code.DEPRECATED, node, message, f"write {row.instead}")
        if any(each.refers_to is not None for each in row.arguments) and not _is_named(node):
            self._is_damaged = True
        place = self._enter(node, row, place)
        check_entries(
            node,
            row,
            self._findings,
            lambda value, entry: self._accept(value, entry, row, place),
            block.row.children,
        )
        is_damaged = node.is_damaged or self._is_misnested
        if not is_damaged:
            check_value_name(node, row, self._findings)
        if not row.rows and not row.is_open:
            self._report_useless_block(node, row)
            return
        children = Block(node.children, row, owner=node, is_damaged=is_damaged)
        self._note(node, children)
        self._block(children, place)

    def _enter(self, node: kdl.Node, row: Row, place: _Place) -> _Place:
        """Note the id of a node, and return where its children are."""
        if row.defines is None:
            if row.children and any(each.defines is not None for each in row.rows):
                self._blocks += 1
                return msgspec.structs.replace(place, block=self._blocks)
            return msgspec.structs.replace(place, is_export=True) if row.name == "exports" else place
        if node.is_damaged:
            self._references.doubt(frozenset((row.defines,)))
        value = node.arguments[0] if node.arguments else None
        if value is None or not isinstance(value.value, str):
            name = f"{node.line}:{node.column}"
            self._references.doubt(frozenset((row.defines,)))
        else:
            name = value.value
            self._references.define(row.defines, place.scope, value, place.block)
        if row.defines in (Kind.NAMESPACE, Kind.SERVICE):
            return _Place((*place.scope, name))
        if row.defines is Kind.LISTENER:
            return self._enter_listener(node, place)
        return place

    def _enter_listener(self, node: kdl.Node, place: _Place) -> _Place:
        """A listener of a namespace sees the routes of it."""
        for child in node.children:
            if child.name == "namespace" and child.arguments and isinstance(child.arguments[0].value, str):
                return _Place((child.arguments[0].value,))
        return place

    def _note(self, node: kdl.Node, children: Block) -> None:
        """Note what later rules need, and check the rules of this block."""
        if children.row.defines is Kind.ROUTE and not children.is_damaged:
            self._routes.append((node, children))
        elif children.row.defines is Kind.FILTER and node.arguments and children.text("type") in ANSWERING_TYPES:
            self._answering_filters.add(str(node.arguments[0].value))
        elif children.row.name == "acme":
            rules.check_acme(children, self._findings)
        elif children.is_damaged:
            return
        elif children.row.defines is Kind.LISTENER:
            rules.check_listener(children, self._findings)
        elif "client-auth" in children.row.children:
            rules.check_client_auth(children, self._findings)
        elif children.row.name == "metrics":
            self._metrics = node, children

    def _accept(self, value: kdl.Value, entry: Entry, row: Row, place: _Place) -> None:
        if entry.refers_to is not None:
            self._references.refer(entry.refers_to, place.scope, value, is_export=place.is_export)
        elif row.name in ("schema-version", "version"):
            rules.check_version(value, self._schema, self._findings)
        elif isinstance(entry.type, Address) and row.is_required:
            self._addresses.listen(value)

    def _unknown(self, node: kdl.Node, block: Block) -> None:
        row = block.row
        if row.is_open:
            check_open_node(node, row, self._findings)
            return
        if self._is_misnested or block.holds(row.open_when) is True:
            return
        if block.owner is None and node.name == "include":
            message = "expected the whole configuration in one text, got include"
            self._findings.error(Code.INCLUDE, node, message, "write what is in those files here")
            return
        code = Code.UNKNOWN_BLOCK if block.owner is None else Code.UNKNOWN_KEY
        where = "at the top level" if block.owner is None else f"in {row.name}"
        if self._findings.is_full(row.unknown):
            self._findings.drop(row.unknown)
            return
        names = [name for name, each in row.children.items() if each.is_read and not each.is_deprecated]
        expected = f"one of {', '.join(names)}" if len(names) <= _MAX_LISTED else "a known name"
        consequence = "" if row.unknown is Severity.ERROR else ", which the proxy ignores"
        message = f"expected {expected} {where}, got {shown_name(node.name)}{consequence}"
        properties = [entry.name for entry in row.properties]
        if node.name in properties and node.arguments:
            suggestion = f"write {node.name}={shown(node.arguments[0].value)} on the line of {row.name}"
        elif (container := _container_of(node.name, row)) is not None:
            suggestion = f"write it inside {container.name}"
            self._doubt(container, block)
        else:
            nearest = self._findings.nearest(node.name, names)
            suggestion = "remove it" if nearest is None else f"write {nearest}"
            used = None if nearest is None else _used(block, nearest)
            if used is not None and consequence:
                message += f"; it uses {shown(used)} for {nearest}"
            if nearest is not None:
                self._doubt(row.children[nearest], block)
        self._findings.add(row.unknown, code, node, message, suggestion)

    def _doubt(self, row: Row, block: Block) -> None:
        """Note that nobody can tell what a node of this row defines or refers to, or whether it is missing."""
        self._is_damaged = True
        if block.owner is None:
            self._misplaced.add(row.name)
        self._references.doubt(_kinds_in(row) | ({row.defines} if row.defines is not None else set()))

    def _repeated(self, node: kdl.Node, row: Row, first: kdl.Node) -> None:
        used = "first" if row.repeated is Repeated.FIRST else "last"
        message = f"expected {row.name} once, got it on line {first.line}, too; the proxy uses only the {used} one"
        self._findings.warning(Code.REPEATED, node, message, "remove one of them")

    def _unread(self, node: kdl.Node, row: Row, block: Block) -> None:
        """Report a node that the proxy never reads, and what it uses instead."""
        if row.instead is None:
            message = f"expected {row.advice}, got {row.name}, which the proxy never reads; it uses {row.uses}"
            self._findings.warning(Code.IGNORED_KEY, node, message, f"write {row.advice}")
            return
        used = _used(block, row.instead)
        uses = f"uses {shown(used)} for {row.instead}" if used is not None else f"has no {row.instead}"
        written = f" {shown(node.arguments[0].value)}" if node.arguments else ""
        message = f"expected {row.instead}, got {row.name}, which the proxy never reads; it {uses}"
        self._findings.warning(Code.IGNORED_KEY, node, message, f"write {row.instead}{written}")

    def _report_useless_block(self, node: kdl.Node, row: Row) -> None:
        if node.children and not self._is_misnested:
            first = node.children[0]
            message = f"expected no block after {row.name}, got {shown_name(first.name)}, which the proxy ignores"
            self._findings.warning(Code.UNKNOWN_KEY, first, message, "remove the block")

    def _missing(self, block: Block) -> None:
        row = block.row
        where = "at the top level" if block.owner is None else f"in {row.name}"
        for name, child in row.demanded.items():
            if block.owner is None and name in self._misplaced:
                continue
            is_demanded = child.is_required or block.holds(child.required_when)
            if is_demanded and name not in block and not any(other in block for other in child.unless):
                choice = " or ".join((name, *child.unless[:2])) if block.owner is not None else name
                condition = child.required_when
                why = "" if condition is None else f" where {condition.sibling} is {block.text(condition.sibling)}"
                self._findings.error(
                    Code.MISSING, block.owner, f"expected {choice} {where}{why}, got none", _example(child)
                )
        for node in block.nodes:
            needed = row.children[node.name].needs if node.name in row.children else ()
            if needed and not any(name in block for name in needed):
                message = (
                    f"expected {' or '.join(needed)} beside {node.name}, got none; the proxy ignores {node.name}"
                )
                suggestion = _example(row.children[needed[0]])
                self._findings.warning(Code.IGNORED_KEY, node, message, suggestion)
        for group in row.at_least_one:
            if not any(name in block for name in group):
                message = f"expected at least one of {', '.join(group)} {where}, got none"
                self._findings.error(Code.MISSING, block.owner, message, _example(row.children[group[0]]))

    def _conflict(self, group: tuple[str, ...], seen: dict[str, kdl.Node], row: Row) -> None:
        found = sorted((seen[name] for name in group if name in seen), key=lambda node: (node.line, node.column))
        if len(found) > 1:
            message = f"expected only one of {' and '.join(group)} in {row.name}, got both"
            self._findings.error(Code.CONFLICT, found[1], message, "remove one of them")


def _used(block: Block, name: str) -> kdl.Scalar:
    """Return the value that the proxy uses for a name: what is written in the block, or the default."""
    read = block.node(name)
    written = read.arguments[0].value if read is not None and read.arguments else None
    return block.row.children[name].default if written is None else written


def _is_named(node: kdl.Node) -> bool:
    """Whether all arguments can be ids."""
    return all(isinstance(each.value, str) for each in node.arguments)


def _example(row: Row) -> str:
    """Return how to write a node that is missing."""
    if row.arguments and row.arguments[0].refers_to is not None:
        return f"write {row.name} and the id that it refers to"
    if row.arguments:
        block = " { … }" if row.rows else ""
        return f"write {row.name} {shown(row.arguments[0].type.example)}{block}"
    inside = [_example(each).removeprefix("write ") for each in row.rows if each.is_required and each.arguments]
    return f"write {row.name} {{ {'; '.join(inside) or '…'} }}"


def _container_of(name: str, row: Row) -> Row | None:
    """Return the block in which a node belongs that was written one level too high."""
    for each in row.rows:
        inside = each.children.get(name)
        if inside is not None and inside.defines is not None:
            return each
    return None


@cache
def _kinds_in(row: Row) -> frozenset[Kind]:
    """Return the kinds that nodes inside a block define."""
    return frozenset(each.defines for _, each in walk(row.rows) if each.defines is not None)

"""Compares the line of a node with its row: arguments and properties."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from sentinel.core import kdl
from sentinel.core.proxy.findings import Code, Findings, shown, shown_name
from sentinel.core.proxy.schema import Entry, Row
from sentinel.core.proxy.value_check import check_value

_MAX_PAIRS: Final = 3

Accept: TypeAlias = Callable[[kdl.Value, Entry], None]
"""Called with every good value."""


def check_entries(
    node: kdl.Node, row: Row, findings: Findings, accept: Accept, siblings: Collection[str] = ()
) -> None:
    """Report what is wrong with the arguments and properties of a node that could be read completely."""
    if node.is_damaged:
        return
    if row.is_open and not row.arguments and not row.properties:
        if row.open_values is not None:
            _report_outside_block(node, row, findings)
        return
    _check_arguments(node, row, findings, accept, siblings)
    _check_properties(node, row, findings, accept)
    if row.one_property:
        _check_source(node, row, findings)


def check_open_node(node: kdl.Node, row: Row, findings: Findings) -> None:
    """Report what is wrong with a node whose name is free, in the block of this row."""
    if node.is_damaged:
        return
    if row.open_names is not None and (fault := row.open_names.fault(node.name)) is not None:
        meant = [] if node.arguments else _split(node.name)
        suggestion = f"write {shown_name(meant[0][0])} {shown(meant[0][1])}" if meant else None
        message = f"expected {row.open_names.expected} in {row.name}, got {shown_name(node.name)}"
        findings.error(fault, node, message, suggestion)
    elif row.open_values is not None:
        check_entries(node, Row(node.name, "", (row.open_values,)), findings, lambda *_: None)


def check_value_name(node: kdl.Node, row: Row, findings: Findings) -> None:
    """Report a node whose value is neither an argument nor a property nor a child."""
    name = row.value_name
    if name is None or node.arguments or node.property(name) or any(each.name == name for each in node.children):
        return
    type_ = row.arguments[0].type
    message = f"expected {type_.expected} for {row.name}, got none"
    findings.error(Code.MISSING, node, message, f"write {row.name} {shown(type_.example)}")


def _check_arguments(
    node: kdl.Node, row: Row, findings: Findings, accept: Accept, siblings: Collection[str]
) -> None:
    entries = row.arguments
    for index, argument in enumerate(node.arguments):
        if index < len(entries):
            entry = entries[index]
        elif entries and entries[-1].is_many:
            entry = entries[-1]
        else:
            _report_extra(node, row, index, siblings, findings)
            break
        if check_value(argument, entry, row, findings):
            accept(argument, entry)
    for entry in entries[len(node.arguments) :]:
        if entry.is_required:
            what = f" as {entry.name}" if entry.name else ""
            findings.error(
                Code.MISSING,
                node,
                f"expected {entry.type.expected}{what} after {row.name}, got none",
                f"write {row.name} {shown(entry.type.example)}",
            )
            break


def _report_outside_block(node: kdl.Node, row: Row, findings: Findings) -> None:
    """Report names and values that are not between braces, where they belong."""
    written: list[kdl.Value | kdl.Property] = [*node.arguments, *node.properties]
    if not written:
        return
    first = min(written, key=lambda each: (each.line, each.column))
    got = f"{shown_name(first.name)}=" if isinstance(first, kdl.Property) else shown(first.value)
    pairs = [*_pairs(node.arguments), *((each.name, each.value.value) for each in node.properties)]
    shown_pairs = [f"{shown_name(name)} {shown(value)}" for name, value in pairs[:_MAX_PAIRS]] or ["…"]
    findings.warning(
        Code.IGNORED_ARGUMENT,
        first,
        f"expected names and values between {{ and }} after {row.name}, got {got}, which the proxy ignores",
        f"write {row.name} {{ {'; '.join(shown_pairs)} }}",
    )


def _pairs(arguments: tuple[kdl.Value, ...]) -> list[tuple[str, kdl.Scalar]]:
    """Return the names and values that people mean by `"X-A" "1"` and by `"X-A: 1"`."""
    texts = [argument.value for argument in arguments]
    if len(texts) == 1:
        return _split(str(texts[0]))
    return list(zip(map(str, texts[::2]), texts[1::2], strict=False))


def _split(text: str) -> list[tuple[str, kdl.Scalar]]:
    """Return the name and the value of a whole header."""
    name, colon, value = text.partition(":")
    return [(name, value.strip())] if colon and name else []


def _report_extra(node: kdl.Node, row: Row, index: int, siblings: Collection[str], findings: Findings) -> None:
    """Report the first argument that the proxy does not read."""
    argument = node.arguments[index]
    if row.one_property:
        message = f"expected secret=, env= or vault= after {row.name}, got {shown(argument.value)}"
        findings.error(Code.BAD_SECRET, argument, message, f'write {row.name} secret="…"')
        return
    count = len(row.arguments)
    if not count:
        message = f"expected no value after {row.name}, got {shown(argument.value)}, which the proxy ignores"
        suggestion = "write what belongs to it between { and }" if row.rows else "remove it"
    else:
        read = " ".join(shown(each.value) for each in node.arguments[:count])
        message = (
            f"expected {count} value{'s' if count > 1 else ''} after {row.name}, got {len(node.arguments)}; "
            f"the proxy uses {read} and ignores {shown(argument.value)}"
        )
        suggestion = f"write a route for each {row.name}" if row.name == "method" else "remove what is ignored"
    name, *values = node.arguments[index:]
    if values and any(name.value == entry.name for entry in row.properties):
        suggestion = f"write {name.value}={shown(values[0].value)}"
    elif name.value in siblings:
        suggestion = f"write ; before {name.value}, or start a new line"
    findings.warning(Code.IGNORED_ARGUMENT, argument, message, suggestion)


def _check_properties(node: kdl.Node, row: Row, findings: Findings, accept: Accept) -> None:
    known = {entry.name: entry for entry in row.properties}
    for each in node.properties:
        entry = known.get(each.name)
        if entry is None:
            _report_unknown_property(each, row, known, findings)
        elif check_value(each.value, entry, row, findings):
            accept(each.value, entry)
    for entry in row.properties:
        if entry.is_required and node.property(entry.name) is None:
            message = f"expected {entry.name}= after {row.name}, got none"
            findings.error(Code.MISSING, node, message, f"write {entry.name}={shown(entry.type.example)}")


def _report_unknown_property(each: kdl.Property, row: Row, known: dict[str, Entry], findings: Findings) -> None:
    name = shown_name(each.name)
    child = row.children.get(each.name)
    if child is not None:
        suggestion = f"write it between {{ and }}: {name} {shown(each.value.value)}"
    else:
        nearest = findings.nearest(each.name, known)
        suggestion = "remove it" if nearest is None else f"write {nearest}="
    message = f"expected {_listed(known)} after {row.name}, got {name}=, which the proxy ignores"
    findings.warning(Code.UNKNOWN_KEY, each, message, suggestion)


def _listed(known: dict[str, Entry]) -> str:
    return " or ".join(f"{name}=" for name in known) if known else "no property"


def _check_source(node: kdl.Node, row: Row, findings: Findings) -> None:
    """A secret has exactly one source."""
    sources = {entry.name for entry in row.properties}
    found: list[kdl.Property] = []
    for each in node.properties:
        if each.name in sources and all(each.name != other.name for other in found):
            found.append(each)
    if not found and not node.arguments:
        message = f"expected exactly one of secret=, env= and vault= after {row.name}, got none"
        findings.error(Code.MISSING, node, message, f'write {row.name} secret="…"')
    if len(found) > 1:
        message = f"expected exactly one of secret=, env= and vault= after {row.name}, got {len(found)}"
        findings.error(Code.BAD_SECRET, found[1], message, "remove all but one")

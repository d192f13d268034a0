"""From a document back to text. Reading that text gives the same document, apart from positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from sentinel.core.kdl import numbers, strings
from sentinel.core.kdl.characters import is_word
from sentinel.core.kdl.document import Annotation, Document, Node, Value

_INDENTATION = "    "


def print_document(document: Document) -> str:
    """Return the text of a document: a line for each node and each closing brace."""
    return "".join(f"{line}\n" for line in _lines(document.nodes, 0))


def print_node(node: Node) -> str:
    """Return the text of a node with its children. Two nodes with the same text are the same."""
    return "\n".join(_lines((node,), 0))


def print_value(value: Value) -> str:
    """Return the text of a value with its type."""
    return _annotation(value.type) + _scalar(value)


def print_name(name: str) -> str:
    """Return a name, in quotes if it needs them."""
    return name if is_word(name) else strings.quote(name)


def _lines(nodes: Iterable[Node], depth: int) -> Iterable[str]:
    margin = _INDENTATION * depth
    for node in nodes:
        words = [_annotation(node.type) + print_name(node.name)]
        words += [print_value(argument) for argument in node.arguments]
        words += [f"{print_name(each.name)}={print_value(each.value)}" for each in node.properties]
        line = margin + " ".join(words)
        if node.children:
            yield f"{line} {{"
            yield from _lines(node.children, depth + 1)
            yield f"{margin}}}"
        else:
            yield line


def _annotation(annotation: Annotation | None) -> str:
    return "" if annotation is None else f"({print_name(annotation.name)})"


def _scalar(value: Value) -> str:
    match value.value:
        case None:
            return "#null"
        case bool(truth):
            return "#true" if truth else "#false"
        case str(text):
            return strings.quote(text)
        case int(number) | float(number):
            return value.literal or numbers.write(number)
        case _ as other:
            assert_never(other)

"""What the parser reads in `documents`, with positions. `python -m tests.golden.kdl.trees` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sentinel.core import kdl

FILES = sorted((Path(__file__).parent / "documents").glob("*.kdl"))


def draw(file: Path) -> str:
    """Return a line for each node, argument, property, type and block, starting with its position."""
    parsed = kdl.parse(file.read_bytes())
    assert parsed.is_valid, parsed.problems
    return "".join(f"{line}\n" for node in parsed.document.nodes for line in _lines(node, ""))


def golden(file: Path) -> Path:
    """Return the file with the expected output."""
    return file.with_suffix(".txt")


def _lines(node: kdl.Node, margin: str) -> Iterator[str]:
    yield from _annotation(node.type, margin)
    yield _line(node, margin, f"node {kdl.print_name(node.name)}")
    inner = margin + "    "
    for value in node.arguments:
        yield from _annotation(value.type, inner)
        yield _line(value, inner, f"argument {value.value!r}")
    for each in node.properties:
        yield _line(each, inner, f"property {kdl.print_name(each.name)}")
        yield from _annotation(each.value.type, inner)
        yield _line(each.value, inner, f"value {each.value.value!r}")
    if node.block is not None:
        yield _line(node.block, inner, "block")
    for child in node.children:
        yield from _lines(child, inner)


def _annotation(annotation: kdl.Annotation | None, margin: str) -> Iterator[str]:
    if annotation is not None:
        yield _line(annotation, margin, f"type {kdl.print_name(annotation.name)}")


def _line(
    found: kdl.Node | kdl.Value | kdl.Property | kdl.Annotation | kdl.Place, margin: str, description: str
) -> str:
    return f"{f'{found.line}:{found.column}':8}{margin}{description}"


if __name__ == "__main__":
    for each in FILES:
        golden(each).write_text(draw(each), encoding="utf-8")

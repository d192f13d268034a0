"""Pieces of a text, found by what the tree knows of them."""

from __future__ import annotations

import pytest

from sentinel.core.kdl import Place, Spans, parse


def pieces(text: str) -> tuple[str, list[str]]:
    """Return the name of the first node and its properties as they are written."""
    node, spans = parse(text).document.nodes[0], Spans(text)
    start, end = spans.name(node)
    found = [spans.property(each) for each in node.properties]
    return text[start:end], [text[start:end] for start, end in found]


@pytest.mark.parametrize(
    ("text", "name", "properties"),
    [
        ("a b=1 c=2", "a", ["b=1", "c=2"]),
        ('\ufeff"a b" c="d e"', '"a b"', ['c="d e"']),
        ("// x\r\n(t)a /* = */ b /* = */ = /* = */ (t /* ) */) #true /-c=1 d=1", "a", ["b", "d=1"]),
        ('\n\na "b"=#"c"# \\\n  d="""\n  x\n  """ { e }', "a", ['"b"=#"c"#', 'd="""\n  x\n  """']),
    ],
)
def test_names_and_properties_are_found_as_written(text: str, name: str, properties: list[str]) -> None:
    found = pieces(text)

    assert found[0] == name
    assert [each[: len(expected)] for each, expected in zip(found[1], properties, strict=True)] == properties


def test_a_property_ends_with_its_value() -> None:
    assert pieces("a b /* = */ = /* = */ (t /* ) */) #true /-c=1")[1] == ["b /* = */ = /* = */ (t /* ) */) #true"]


def test_places_are_offsets_after_every_kind_of_line_end() -> None:
    spans = Spans("a\r\nb\n\u2028c")

    assert [spans.offset(Place(*place)) for place in ((1, 1), (2, 1), (3, 1), (4, 1))] == [0, 3, 5, 6]

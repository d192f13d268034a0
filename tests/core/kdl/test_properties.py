"""What holds for every document, and for every text that is not one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core import kdl
from sentinel.core.kdl.characters import NEWLINE
from tests.core.kdl.documents import DOCUMENTS, TEXTS
from tests.support.examples import examples

PIECES = st.sampled_from(
    [
        *'ab1{}()=;[],/-\\#" \n\té\x00\ufeff\u2028',
        *(".5", "0x1f", "true", "#true", "#nan", "//", "/*", "*/", "/-", "(t)", "k=1", "\\q", "[1, 2]", "\r\n"),
        *(
            '"x"',
            '""',
            '"x\\n"',
            '#"r"#',
            'r"v"',
            '"""',
            '"""\n x\n """',
            '"\\u{zz}"',
            "\\\n",
            "{\n",
            "\n}\n",
            "// c\n",
        ),
    ]
)
SOUPS = st.lists(PIECES, max_size=25).map("".join)


SOUND_LINES = ["", "a 1 k=2 // c", 'b "x" { c; d #true }', "/- e { f }", '"404" #"raw"#', "/* c */"]
FAULTY_LINES = [
    *(
        "a true",
        "404 { b }",
        'a ["x", 1]',
        "a k=",
        "a 10s .5",
        'a "open',
        'a r"x" "\\q"',
        "= 1",
        "(t u)x 1",
        "a { b } c",
    ),
    *("a )", 'a "x"y', "{ a }", "a;; b", "a #yes", "a k=[1]", "a /- /- 1", "}", 'a """x"""', "a b/c", "\\x"),
]
"""Each is a mistake that ends with its line."""


def shape(document: kdl.Document) -> str:
    """Return what a document means. Positions and NaN make documents unequal that are the same."""
    return kdl.print_document(document)


def plain(node: kdl.Node) -> tuple[object, ...]:
    def value(each: kdl.Value) -> tuple[object, ...]:
        return type(each.value), each.value, each.type and each.type.name

    return (
        node.name,
        node.type and node.type.name,
        [value(argument) for argument in node.arguments],
        [(each.name, value(each.value)) for each in node.properties],
        [plain(child) for child in node.children],
    )


@hypothesis.given(document=DOCUMENTS)
@hypothesis.settings(max_examples=examples(150))
def test_a_printed_document_is_read_as_the_same_document(document: kdl.Document) -> None:
    parsed = kdl.parse(kdl.print_document(document))

    assert parsed.problems == ()
    assert [plain(node) for node in parsed.document.nodes] == [plain(node) for node in document.nodes]
    assert shape(parsed.document) == shape(document)


@hypothesis.given(text=SOUPS | TEXTS)
@hypothesis.settings(max_examples=examples(400))
def test_every_text_is_read_or_has_problems_inside_of_it(text: str) -> None:
    parsed = kdl.parse(text)

    lines = NEWLINE.split(text.removeprefix("\ufeff"))
    for problem in parsed.problems:
        assert problem.line is not None
        assert problem.column is not None
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
    if parsed.is_valid:
        assert shape(kdl.parse(shape(parsed.document)).document) == shape(parsed.document)
        assert kdl.upgrade(text).text == text


@hypothesis.given(data=st.binary(max_size=60))
@hypothesis.settings(max_examples=examples(150))
def test_bytes_of_any_kind_are_read(data: bytes) -> None:
    assert kdl.parse(data).document is not None
    assert kdl.upgrade(data).text is not None


@hypothesis.given(document=DOCUMENTS, at=st.integers(0, 300), piece=PIECES)
@hypothesis.settings(max_examples=examples(200))
def test_a_changed_document_is_read_with_all_nodes_before(document: kdl.Document, at: int, piece: str) -> None:
    text = f"first\n{kdl.print_document(document)}"
    cut = min(len("first\n") + at, len(text))

    parsed = kdl.parse(text[:cut] + piece + text[cut:])

    assert parsed.document.nodes[0].name == "first"


@hypothesis.given(document=DOCUMENTS)
@hypothesis.settings(max_examples=examples(60))
def test_removing_a_node_never_adds_a_problem(document: kdl.Document) -> None:
    for fewer in without_one(document.nodes):
        assert kdl.parse(kdl.print_document(kdl.Document(fewer))).is_valid


@hypothesis.given(
    lines=st.lists(st.sampled_from(FAULTY_LINES + SOUND_LINES), max_size=8), removed=st.integers(0, 7)
)
@hypothesis.settings(max_examples=examples(200))
def test_a_line_is_judged_the_same_whatever_stands_around_it(lines: list[str], removed: int) -> None:
    alone = {line: [(each.code, each.column) for each in kdl.parse(line).problems] for line in lines}

    for kept in (lines, lines[:removed] + lines[removed + 1 :]):
        expected = [(code, number, column) for number, line in enumerate(kept, 1) for code, column in alone[line]]
        problems = kdl.parse("\n".join(kept)).problems

        assert [(each.code, each.line, each.column) for each in problems] == expected


def without_one(nodes: tuple[kdl.Node, ...]) -> Iterator[tuple[kdl.Node, ...]]:
    """Yield the nodes without one of them or of their descendants."""
    for number, node in enumerate(nodes):
        before, after = nodes[:number], nodes[number + 1 :]
        yield before + after
        for children in without_one(node.children):
            yield (*before, msgspec.structs.replace(node, children=children), *after)


def test_special_numbers_are_printed_as_keywords() -> None:
    document = kdl.Document((kdl.Node("a", tuple(map(kdl.Value, (math.inf, -math.inf, math.nan, 1.5)))),))

    assert kdl.print_document(document) == "a #inf #-inf #nan 1.5\n"


@pytest.mark.parametrize("number", [10**400 - 1, 10**400, -(10**400), 1 - 10**400, 1 - 10**399], ids=hex)
def test_a_large_number_is_printed_so_that_it_can_be_read(number: int) -> None:
    printed = kdl.print_value(kdl.Value(number))

    assert len(printed) <= kdl.MAX_DIGITS
    assert kdl.parse(f"a {printed}").document.nodes[0].arguments[0].value == number


def test_nodes_and_values_are_printed_alone() -> None:
    node = kdl.parse("a (t)1 { b }").document.nodes[0]

    assert kdl.print_node(node) == "a (t)1 {\n    b\n}"
    assert kdl.print_value(node.arguments[0]) == "(t)1"
    assert kdl.print_name("a b") == '"a b"'

"""One wrong brace is one problem, and everything around it is read as it was meant."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core import kdl
from sentinel.core.kdl import Code
from tests.core.kdl.documents import DOCUMENTS
from tests.support.examples import examples

LAID_OUT = """\
system {
    methods ["GET", "POST"]
    (t)workers (u8)4
}
listeners {
    // { in a comment
    listener "web" { // (
        address "0.0.0.0:80"; text "} ["
        policies { set { X-A "1"; X-B "2" }; remove "b" }
    }
    empty { a }
    listener "b" { address #"]"# }
}
last { a; b k=1 { c } }
"""
BRACES = [
    at
    for at, char in enumerate(LAID_OUT)
    if char in "{}" and LAID_OUT[at - 3 : at] != "// " and LAID_OUT[at - 1] != '"'
]
REPLACEMENTS = {"{": ("[", "(", "]", ")", "}", "{{"), "}": ("]", ")", "[", "(", "{")}


def shape(text: str) -> str:
    return kdl.print_document(kdl.parse(text).document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [\n b\n}\nc", "a { b }; c"),
        ("a (\n b\n}\nc", "a { b }; c"),
        ("a }\n b\n}\nc", "a { b }; c"),
        ("a(\n b\n}\nc", "a { b }; c"),
        ("a[\n b\n}\nc", "a { b }; c"),
        ("a {\n b\n]\nc", "a { b }; c"),
        ("a {\n b\n) // d\nc", "a { b }; c"),
        ("a {\n b\n{\nc", "a { b }; c"),
        ("a {\n b\n];\nc", "a { b }; c"),
        ("a [ b 1 }\nc", "a { b 1 }; c"),
        ("a ( b 1 }\nc", "a { b 1 }; c"),
        ("a } b 1 }\nc", "a { b 1 }; c"),
        ("a { b 1 ]\nc", "a { b 1 }; c"),
        ("a { b 1 )\nc", "a { b 1 }; c"),
        ("a { b 1 {\nc", "a { b 1 }; c"),
        ("a { b { c 1 ) }\nd", "a { b { c 1 } }; d"),
        ("a { b { c 1 { }\nd", "a { b { c 1 } }; d"),
        ("a { b ( c 1 } }\nd", "a { b { c 1 } }; d"),
        ("a {{\n b\n}\nc", "a { b }; c"),
        ("a {{ b }\nc", "a { b }; c"),
        ("a {\n b { c }}\n d\n}\ne", "a { b { c }; d }; e"),
        ("a {\n b { c }}\n}\ne", "a { b { c } }; e"),
        ("a {\n b\n}}\nc", "a { b }; c"),
        ("a [\n b [1, 2]\n c (t)1\n}\nd", "a { b 1 2; c (t)1 }; d"),
        ('a {\n b """\n  {[(\n  """\n]\nd', 'a { b "{[(" }; d'),
        ('a "x {\n b\n]\nd', "a x { b }; d"),
    ],
)
def test_a_wrong_brace_is_read_as_it_was_meant(text: str, expected: str) -> None:
    parsed = kdl.parse(text)

    assert kdl.print_document(parsed.document) == shape(expected)
    assert not parsed.document.is_misnested
    assert [each.code for each in parsed.problems if each.code not in (Code.ARRAY, Code.UNCLOSED_STRING)] == [
        Code.WRONG_BRACE
    ]


@pytest.mark.parametrize("at", BRACES)
def test_any_wrong_brace_of_a_document_is_one_problem_at_its_place(at: int) -> None:
    line, column = LAID_OUT.count("\n", 0, at) + 1, at - LAID_OUT.rfind("\n", 0, at)

    for wrong in REPLACEMENTS[LAID_OUT[at]]:
        parsed = kdl.parse(LAID_OUT[:at] + wrong + LAID_OUT[at + 1 :])

        problems = [each for each in parsed.problems if each.code is not Code.ARRAY]
        place = (line, column + len(wrong) - 1)
        assert [(each.code, (each.line, each.column)) for each in problems] == [(Code.WRONG_BRACE, place)], wrong
        assert kdl.print_document(parsed.document) == shape(LAID_OUT)


@hypothesis.given(document=DOCUMENTS, data=st.data())
@hypothesis.settings(max_examples=examples(60))
def test_a_wrong_brace_of_a_printed_document_is_one_problem(document: kdl.Document, data: st.DataObject) -> None:
    lines = kdl.print_document(document).split("\n")
    braces = [number for number, line in enumerate(lines) if line.endswith(" {") or line.strip() == "}"]
    hypothesis.assume(braces)
    number = data.draw(st.sampled_from(braces))
    wrong = data.draw(st.sampled_from("[(" if lines[number].endswith("{") else "])"))
    lines[number] = lines[number][:-1] + wrong

    parsed = kdl.parse("\n".join(lines))

    assert [(each.code, each.line) for each in parsed.problems] == [(Code.WRONG_BRACE, number + 1)]
    assert kdl.print_document(parsed.document) == kdl.print_document(document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [\n b\n}", "1:3: expected {, which opens a block, got [ (write {)"),
        ("a {\n b\n)", "3:1: expected }, which closes a block, got ) (write })"),
        ("a {{\n b\n}", "1:4: expected one {, got two (remove one of them)"),
    ],
)
def test_the_brace_is_suggested(text: str, expected: str) -> None:
    assert [str(problem) for problem in kdl.parse(text).problems] == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "a {\n b [1, 2]\n c (t)1\n",
        "a {\n b [\n  1\n  2\n ]\n",
        "a [1\n}",
        "a )\n}",
        "a (t\n}",
        "}\n b",
        "a { b }}",
        "a {\n b\n   }\n}\n}",
        "a { b c } }\nd",
        "a\n{\n b\n",
        "a {\n b { c }}\n}\n}\nd",
        "a {\n b {\n  c { d }}",
        "  }\n",
    ],
)
def test_other_problems_of_nesting_stay_what_they_are(text: str) -> None:
    parsed = kdl.parse(text)

    assert parsed.document.is_misnested
    assert {Code.UNCLOSED_BLOCK, Code.UNOPENED_BLOCK} & {problem.code for problem in parsed.problems}


def test_a_repair_that_makes_more_problems_is_dropped() -> None:
    text = "a {{ b }}\nc {\n d\n"

    assert [problem.code for problem in kdl.parse(text).problems] == [Code.MISSING_NAME, Code.UNCLOSED_BLOCK]


def test_no_more_braces_are_repaired_than_problems_kept() -> None:
    parsed = kdl.parse("a [\n b\n}\n" * (kdl.MAX_PROBLEMS + 2))

    assert parsed.problems[-1].code is Code.TOO_MANY_PROBLEMS

"""A path with a wildcard that is not in quotes is one problem, although `/*` opens a comment."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a /b/*", 'a "/b/*"'),
        ("a /b/* 1", 'a "/b/*" 1'),
        ("a b.d/*.kdl /c/**", 'a "b.d/*.kdl" "/c/**"'),
        ("a k=/b/* {\n  c\n}", 'a k="/b/*" { c }'),
        ("a { b /* }", 'a { b "/*" }'),
        ("a { b /**; c }", 'a { b "/**"; c }'),
        ("a /* // b", 'a "/*"'),
        ("a x/*", 'a "x/*"'),
        ("a x/*.y", 'a "x/*.y"'),
        ("a /b/*/c /d/*", 'a "/b/*/c" "/d/*"'),
        ("a /b/**/c", 'a "/b/**/c"'),
        ('a /b/*\n/* c */ "/*" /* d */', 'a "/b/*"\n"/*"'),
        ("a /b/*\nc x/*d*/ 1", 'a "/b/*"\nc x 1'),
        ('a /b/*\nc "x\n', 'a "/b/*"\nc "x"'),
        ("a /b/*\nc [\n d\n}", 'a "/b/*"\nc { d }'),
    ],
)
def test_a_path_with_a_wildcard_is_read_as_a_text(text: str, expected: str) -> None:
    parsed = kdl.parse(text)

    assert kdl.print_document(parsed.document) == kdl.print_document(kdl.parse(expected).document)
    assert {each.code for each in parsed.problems} <= {Code.NEEDS_QUOTES, Code.UNCLOSED_STRING, Code.WRONG_BRACE}


def test_every_path_with_a_wildcard_is_a_problem_of_its_own() -> None:
    problems = kdl.parse("a /b/*\nc true\nd /e/*\n").problems

    assert [(each.line, each.column, each.code) for each in problems] == [
        (1, 3, Code.NEEDS_QUOTES),
        (2, 3, Code.BARE_KEYWORD),
        (3, 3, Code.NEEDS_QUOTES),
    ]
    assert str(problems[0]) == '1:3: expected a value, got /b/*, in which /* starts a comment (write "/b/*")'


@pytest.mark.parametrize(
    "text",
    ["/* a", "a 1 /* b", "a\n/*\nb", "a /* b c", "a /b /* c", "a /* b\n c", "/**\n * a", "x/* a", '"x"/* a'],
)
def test_another_comment_without_an_end_stays_one(text: str) -> None:
    assert kdl.parse(text).problems[-1].code is Code.UNCLOSED_COMMENT


@pytest.mark.parametrize("text", ["a/* b */ 1", "a x/*/**/*/ 1", "a /* b */\n", "a/**/ b"])
def test_a_comment_with_an_end_is_valid(text: str) -> None:
    assert kdl.parse(text).is_valid


def test_a_comment_without_an_end_names_the_one_inside_of_it() -> None:
    text = "a\n/* b\n c /d/*\n*/\ne"

    assert str(kdl.parse(text).problems[0]) == (
        "2:1: expected */ after this /*, got the end of the file "
        "(write */ where the comment ends; comments nest, and the /* on line 3 is inside of this one)"
    )


def test_more_wildcards_than_problems_are_read() -> None:
    parsed = kdl.parse("a /b/*\n" * (kdl.MAX_PROBLEMS + 2))

    assert len(parsed.document.nodes) == kdl.MAX_PROBLEMS + 1
    assert parsed.problems[-1].code is Code.TOO_MANY_PROBLEMS

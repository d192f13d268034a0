"""What is read of a document with mistakes, and that one mistake is one problem."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code


def test_a_file_reports_all_its_mistakes_at_once() -> None:
    text = """\
system {
    daemon true
    worker-threads 4
    timeout 10s retries=false
}
listeners [1] {
    404 { path /x }
    ok "fine"
    bad "open
    (t u)x 1
    after
}
}
last k=
"""

    parsed = kdl.parse(text)

    assert [(problem.line, problem.column, problem.code) for problem in parsed.problems] == [
        (2, 12, Code.BARE_KEYWORD),
        (4, 13, Code.NEEDS_QUOTES),
        (4, 25, Code.BARE_KEYWORD),
        (6, 11, Code.ARRAY),
        (7, 5, Code.NUMERIC_NAME),
        (7, 16, Code.NEEDS_QUOTES),
        (9, 9, Code.UNCLOSED_STRING),
        (10, 5, Code.BAD_TYPE),
        (13, 1, Code.UNOPENED_BLOCK),
        (14, 8, Code.BAD_PROPERTY),
    ]
    assert [node.name for node in parsed.document.nodes] == ["system", "listeners", "last"]
    assert [node.name for node in parsed.document.nodes[1].children] == ["404", "ok", "bad", "x", "after"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a true", "a #true\n"),
        ("a k=10s", 'a k="10s"\n'),
        ('a [ "x", false, 3, y, z/y, // c\n .5 -inf #null ] 1', 'a "x" #false 3 "y" "z/y" ".5" #-inf #null 1\n'),
        ("404", '"404"\n'),
        ("a 0x1f, -3, 2.5,", "a 31 -3 2.5\n"),
        ("key=value", 'key "value"\n'),
        ("key = 1 2", "key 1 2\n"),
        ('a \\"x y\\" 1', 'a "x y" 1\n'),
        ('a \\"x" 1', 'a "x" 1\n'),
        ('a "x", y', 'a "x" "y"\n'),
        ('a r"x"', 'a "x"\n'),
        ("a -.5", "a -0.5\n"),
        ('a "x\ny"\nb', 'a "x\\ny"\nb\n'),
        ('a "x\n  "\nb', 'a "x\\n  "\nb\n'),
        ('a #"x\ny"#\nb', 'a "x\\ny"\nb\n'),
        ('a "\\q"', 'a "\\\\q"\n'),
        ('a "\\u{110000}"', 'a "\\\\u{110000}"\n'),
        ("a { b } c { d }", "a {\n    b\n}\nc {\n    d\n}\n"),
        ("a { b } { c }", "a {\n    b\n    c\n}\n"),
        ("a(t)1", "a (t)1\n"),
        ("a [/b, /c]", 'a "/b" "/c"\n'),
        ("a 10.0.0.1:80,", 'a "10.0.0.1:80"\n'),
        ("a /b,", 'a "/b"\n'),
        ("a { b },", "a {\n    b\n}\n"),
        ("a { b }, c", "a {\n    b\n}\nc\n"),
        ("a 1 # it's a \"comment", "a 1\n"),
        ('#a "b\nc', "c\n"),
        ("a { } # b\nc", "a\nc\n"),
        ("a {\n / a } b\n c\n}", "a {\n    c\n}\n"),
        ("a 1\n{\n b\n}\nc", "a 1 {\n    b\n}\nc\n"),
        ("a {\n b\n // c\n {\n c\n }\n}", "a {\n    b {\n        c\n    }\n}\n"),
    ],
)
def test_what_was_meant_is_read_and_nothing_is_missing(text: str, expected: str) -> None:
    document = kdl.parse(text).document

    assert kdl.print_document(document) == expected
    assert not any(node.is_damaged for node in document.nodes)


@pytest.mark.parametrize(
    "text",
    [
        "a [1\nb",
        "a k=[1]\nb",
        "a k=\nb",
        "a =\nb",
        "a = { c }\nb",
        "a )\nb",
        'a "x"y\nb',
        "()a\nb",
        "a (\nb",
        "a k=(\nb",
        "a { ) }\nb",
        "a (t)k=\nb",
    ],
)
def test_a_node_of_which_something_is_missing_says_so(text: str) -> None:
    nodes = kdl.parse(text).document.nodes

    assert [(node.name, node.is_damaged) for node in nodes] == [("a", True), ("b", False)]


def test_a_document_of_which_a_node_is_missing_says_so() -> None:
    assert kdl.parse("{ a }\nb").document.is_damaged
    assert kdl.parse("= a\nb").document.is_damaged


@pytest.mark.parametrize("text", ["a {\n b\n", "a {\n}\n}\nb"])
def test_a_document_whose_braces_do_not_match_says_so(text: str) -> None:
    document = kdl.parse(text).document

    assert document.is_damaged
    assert document.is_misnested


def test_a_document_that_is_cut_off_says_so() -> None:
    document = kdl.parse('a {\n b\n c """\n').document

    assert document.is_damaged
    assert not document.is_misnested
    assert [node.is_damaged for node in document.nodes] == [True]


def test_a_node_with_a_string_without_an_end_is_damaged() -> None:
    nodes = kdl.parse('a "x\nb\n"c\nd 1').document.nodes

    assert [node.is_damaged for node in nodes] == [True, False, True, False]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('a "x\nb "y"\nc', "abc"),
        ('a "x\nb k="y"\nc', "abc"),
        ('a "x\nb ""\nc', "abc"),
        ('a #"x\nb #"y"#\nc', "abc"),
        ('a "x{y\nb\n', "ab"),
    ],
)
def test_an_unclosed_string_ends_with_its_line(text: str, names: str) -> None:
    parsed = kdl.parse(text)

    assert [node.name for node in parsed.document.nodes] == list(names)
    assert [problem.code for problem in parsed.problems] == [Code.UNCLOSED_STRING]


@pytest.mark.parametrize("text", ['a {\n b """\n c', 'a {\n b #"""\n c', "a {\n /* c }"])
def test_what_swallows_the_rest_of_the_file_hides_unclosed_blocks(text: str) -> None:
    assert [problem.line for problem in kdl.parse(text).problems] == [2]


def test_a_missing_brace_is_looked_for_by_indentation() -> None:
    text = "a {\n    b {\n        c\n    d {\n    }\n}\n"

    problem = kdl.parse(text).problems[0]

    assert (problem.code, problem.line) == (Code.UNCLOSED_BLOCK, 1)
    assert problem.suggestion is not None
    assert problem.suggestion.endswith("by the indentation, the block of line 2 lacks it")


def test_a_brace_behind_other_text_says_nothing_about_indentation() -> None:
    text = "a {\n            b {\n  c 1 }\n"

    assert kdl.parse(text).problems[0].suggestion == "write } where the block ends"


@pytest.mark.parametrize(
    "text", ["a 1\x002", "a #t\x00", "a b/\x00", "1\x00 1", 'a "\\\x00"', 'a b=\x00"c"', 'a ""\x00']
)
def test_a_disallowed_character_causes_no_other_problem(text: str) -> None:
    assert [problem.code for problem in kdl.parse(text).problems] == [Code.DISALLOWED_CHARACTER]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a "b\x00" 1', "a 1"),
        ('a "b\x00"="c" 1', "a 1"),
        ('a b="c\x00" 1', "a 1"),
        ('a ["b\x00"] 1', "a 1"),
        ('a "\x00"', "a"),
    ],
)
def test_a_value_with_a_disallowed_character_counts_as_lost(text: str, expected: str) -> None:
    node = kdl.parse(text).document.nodes[0]

    assert node.is_damaged
    assert kdl.print_document(kdl.Document((node,))) == f"{expected}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\x00a 1", "a 1"), ("a\x00b 1", "ab 1"), ("a \x00 1 \x00", "a 1"), ("a {\x00 b }\x00", "a {\n    b\n}")],
)
def test_a_disallowed_character_elsewhere_counts_as_removed(text: str, expected: str) -> None:
    node = kdl.parse(text).document.nodes[0]

    assert not node.is_damaged
    assert kdl.print_document(kdl.Document((node,))) == f"{expected}\n"


def test_an_escape_may_write_a_disallowed_character() -> None:
    parsed = kdl.parse(r'a "\u{1a}"')

    assert parsed.is_valid
    assert parsed.document.nodes[0].arguments[0].value == "\x1a"


@pytest.mark.parametrize("text", ['a b"c', 'a "x b="y"', '"""\n""""', 'a "x\\', 'a "\\', 'a "x\\\n', 'a k="x"y"'])
def test_a_missing_quote_is_one_problem(text: str) -> None:
    assert [problem.code for problem in kdl.parse(text).problems] == [Code.UNCLOSED_STRING]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n{ }", "2:1: expected { on the line of a, got it on a line of its own (write { at the end of line 1)"),
        ("a { },", "1:6: expected the end of the node after }, got a comma (remove the comma)"),
        ("a { }, b", "1:6: expected the end of the node after }, got a comma (remove the comma)"),
        ("# a", "1:1: expected // before a comment, got # (write // instead of #)"),
        ("/ it's { a comment", "1:1: expected // before a comment, got / (write // instead of /)"),
        ("a 1 ## b", "1:5: expected // before a comment, got # (write // instead of #)"),
    ],
)
def test_what_other_languages_write_is_one_problem(text: str, expected: str) -> None:
    assert [str(problem) for problem in kdl.parse(text).problems] == [expected]


def test_a_block_without_a_name_belongs_to_no_node_that_has_one() -> None:
    parsed = kdl.parse("a { }\n{ }\nb; { }")

    assert [problem.code for problem in parsed.problems] == [Code.MISSING_NAME] * 2
    assert [node.block is not None for node in parsed.document.nodes] == [True, False]


def test_a_list_of_lists_is_one_problem() -> None:
    parsed = kdl.parse("a [[1], [2]]\nb")

    assert [(problem.code, problem.column) for problem in parsed.problems] == [(Code.ARRAY, 3)]
    assert [node.is_damaged for node in parsed.document.nodes] == [True, False]


def test_of_two_blocks_the_first_is_the_place_of_the_children() -> None:
    assert kdl.parse("a { b } { c }").document.nodes[0].block == kdl.Place(1, 3)


@pytest.mark.parametrize(
    "text",
    [
        "a [{ b 1 }]",
        "a [\n  { b 1 }, // ]\n  { b 2 }\n]",
        'a ["x]", [1], {}] 1',
        "a b=[[1]]",
        "a [ [1, 2], [3] ]; b 1",
    ],
)
def test_a_list_with_lists_or_blocks_in_it_is_one_problem(text: str) -> None:
    parsed = kdl.parse(text)

    assert [str(problem) for problem in parsed.problems] == [
        f"1:{3 if text[2] == '[' else 5}: expected a value, got [, and KDL has no lists"
        " (write a node for each item between { and })"
    ]
    assert parsed.document.nodes[0].is_damaged
    assert [node.name for node in parsed.document.nodes] == (["a", "b"] if "; b" in text else ["a"])


@pytest.mark.parametrize("text", ["a [{ b 1 ]\n", 'a ["x", {\n', "a [[1]\n", "a [{ b ] }\n"])
def test_a_nested_list_without_its_end_is_reported_where_it_starts(text: str) -> None:
    first = kdl.parse(text).problems[0]

    assert (first.code, first.line, first.column) == (Code.ARRAY, 1, 3)
    assert first.suggestion == "write the values one after the other, without brackets"


def test_the_ends_of_only_so_many_lists_are_looked_for() -> None:
    problems = kdl.parse("a [{ b ]; }\n" * 40 + "c [{ d 1 }]\n").problems

    last = next(problem for problem in problems if problem.line == 41)
    assert last.suggestion == "write the values one after the other, without brackets"


def test_brackets_around_nodes_should_be_braces() -> None:
    text = 'a [\n    b "c" {\n        d 1\n    }\n]\ne [{ f 1 }]\n'

    assert [(problem.code, problem.line) for problem in kdl.parse(text).problems] == [
        (Code.WRONG_BRACE, 1),
        (Code.WRONG_BRACE, 5),
        (Code.ARRAY, 6),
    ]


def test_a_colon_before_a_block_is_one_problem() -> None:
    assert [str(problem) for problem in kdl.parse('"a" "b": {\n    c 1\n}').problems] == [
        "1:8: expected white space, got : (remove it)"
    ]

"""One lost quote is one problem, and everything around the string is read as it was meant."""

from __future__ import annotations

import re

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core import kdl
from sentinel.core.kdl import Code
from tests.support.examples import examples

WORDS = ("web", "127.0.0.1:8443", "/api/v1", "*.example.com", "404", "max-age=60; preload", "a b", "{id}", "GET")
TEXTS = st.sampled_from(WORDS).map(lambda text: f'"{text}"')
SINGLE_WORDS = st.sampled_from([word for word in WORDS if " " not in word]).map(lambda text: f'"{text}"')


def entries(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(texts, texts.map("key={}".format), texts.map("key=(t){}".format), st.just("7"))


def lines(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A line as people write it: a node, one that opens a block, or one with a block on the same line."""
    return st.builds(
        "node {}{}".format,
        st.lists(entries(texts), min_size=1, max_size=3).map(" ".join),
        st.sampled_from(["", " // c", " {", " { }", ' { child "x" }', " { child 1; other }"]),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a "x {\n  b\n}', "a x { b }"),
        ('a x" {\n  b\n}', "a x { b }"),
        ('a k="x {\n}', "a k=x"),
        ('a k=x" { b }', "a k=x { b }"),
        ('a (t)x"', "a (t)x"),
        ('"x {\n}', "x"),
        ('x" 1', "x 1"),
        ('a { b "x }', "a { b x }"),
        ('a {b x"}', "a { b x }"),
        ('a {b "x}', "a { b x }"),
        ('a "x{\n}', "a x"),
        ('a "/{id}', 'a "/{id}"'),
        ('a "{ x }', 'a "{ x }"'),
        ('a { b "x; c 1 }', "a { b x; c 1 }"),
        ('a "max-age=1; preload', 'a "max-age=1; preload"'),
        ('a { b "x; c "y" }', "a { b x; c y }"),
        ('a "x k="y" 1', "a x k=y 1"),
        ('a "x "y" "z"', "a x y z"),
        ('a "x" y" "z"', "a x y z"),
        ('a x" "y" "z"', "a x y z"),
        ('a "x y  ', 'a "x y"'),
        ('a "x // c', "a x"),
        ('a "x // say "c"', "a x"),
        ('a "x" "y // say', "a x y"),
        ('a "x /* c */ 1', "a x 1"),
        ('a "x \\\n 1', "a x 1"),
        ('a "\\u{e9} {\n}', 'a "é"'),
        ('a #"\\ {\n}', 'a "\\\\"'),
        ('a #"x" { b }', "a x { b }"),
        ('a x"# { b }', "a x { b }"),
        ('a r#"x" { b }', "a x { b }"),
        ('a #"x"# "y', "a x y"),
        ('/* "\n */ a "x', "a x"),
        ('a "x" \\\n y" 1', "a x y 1"),
        ('\ufeffa "x', "a x"),
        ('a {b" 1 }', "a { b 1 }"),
        ('a "{id} { b }', 'a "{id}" { b }'),
        ('a "x " "y', 'a "x " y'),
        ('a "x k=', 'a "x k="'),
        ('a {id}" 1', 'a "{id}" 1'),
        ('a x"\nb k=(t)"/y"', 'a x\nb k=(t)"/y"'),
        ('a "x k="/y"', 'a x k="/y"'),
        ('a "//x', 'a "//x"'),
        ('a x"//y', "a x"),
    ],
)
def test_a_string_without_one_quote_is_read_as_it_was_meant(text: str, expected: str) -> None:
    parsed = kdl.parse(text)

    assert kdl.print_document(parsed.document) == kdl.print_document(kdl.parse(expected).document)
    assert [problem.code for problem in parsed.problems] == [Code.UNCLOSED_STRING]


@hypothesis.given(before=lines(TEXTS), line=lines(TEXTS), after=lines(TEXTS), data=st.data())
@hypothesis.settings(max_examples=examples(150))
def test_a_lost_closing_quote_is_one_problem(before: str, line: str, after: str, data: st.DataObject) -> None:
    check_one_problem(before, line, after, data, which=1)


@hypothesis.given(before=lines(TEXTS), line=lines(SINGLE_WORDS), after=lines(TEXTS), data=st.data())
@hypothesis.settings(max_examples=examples(150))
def test_a_lost_opening_quote_is_one_problem(before: str, line: str, after: str, data: st.DataObject) -> None:
    check_one_problem(before, line, after, data, which=0)


def check_one_problem(before: str, line: str, after: str, data: st.DataObject, *, which: int) -> None:
    quotes = [at for at, char in enumerate(line) if char == '"'][which::2]
    hypothesis.assume(quotes)
    lost = data.draw(st.sampled_from(quotes))
    ends = "".join("\n}" for each in (before, line, after) if each.endswith("{"))

    problems = kdl.parse("\n".join((before, line[:lost] + line[lost + 1 :], after)) + ends).problems

    assert [(problem.code, problem.line) for problem in problems] == [(Code.UNCLOSED_STRING, 2)]


def test_opening_quotes_lost_on_two_lines_are_two_problems() -> None:
    parsed = kdl.parse('a x" {\n  b y"\n}\nc z"\nd "1\n2"')

    assert [(each.code, each.line) for each in parsed.problems] == [
        (Code.UNCLOSED_STRING, 1),
        (Code.UNCLOSED_STRING, 2),
        (Code.UNCLOSED_STRING, 4),
        (Code.NEWLINE_IN_STRING, 5),
    ]
    assert kdl.print_document(parsed.document) == kdl.print_document(
        kdl.parse('a x { b y }; c z; d "1\\n2"').document
    )


def test_the_node_of_a_lost_quote_is_damaged_and_its_children_are_not() -> None:
    nodes = kdl.parse('a "x {\n b\n}\nc').document.nodes

    assert [(node.name, node.is_damaged) for node in nodes] == [("a", True), ("c", False)]
    assert [(node.name, node.is_damaged) for node in nodes[0].children] == [("b", False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a "x {', '1:3: expected a quote after "x, got none (write "x")'),
        ('a k=10.0.0.1" {', '1:5: expected a quote before 10.0.0.1", got none (write "10.0.0.1")'),
        ('a #"\\d {', '1:3: expected a quote after #"\\d, got none (write "\\\\d")'),
    ],
)
def test_the_whole_string_is_suggested(text: str, expected: str) -> None:
    assert str(kdl.parse(f"{text}\n}}").problems[0]) == expected


def test_a_second_mistake_in_the_string_is_reported_too() -> None:
    problems = kdl.parse('a "\\d+ {\n}\nb "\\q {\n}').problems

    assert [(problem.line, problem.column, problem.code) for problem in problems] == [
        (1, 3, Code.UNCLOSED_STRING),
        (1, 4, Code.BAD_ESCAPE),
        (3, 3, Code.UNCLOSED_STRING),
        (3, 4, Code.BAD_ESCAPE),
    ]


def test_problems_are_reported_once_although_the_text_is_read_twice() -> None:
    parsed = kdl.parse('a "x {\n b true \x00 http://y\n}\n')

    assert [problem.code for problem in parsed.problems] == [
        Code.UNCLOSED_STRING,
        Code.BARE_KEYWORD,
        Code.DISALLOWED_CHARACTER,
    ]
    assert [warning.code for warning in parsed.warnings] == [Code.COMMENT_IN_URL]


def test_more_lost_quotes_than_problems_end_with_their_lines() -> None:
    nodes = kdl.parse('a "x { }\n' * (kdl.MAX_PROBLEMS + 2)).document.nodes

    assert [node.block is None for node in nodes[-3:]] == [False, True, True]
    assert nodes[-1].arguments[0].value == "x { }"


MULTILINE = 'a {\n  b """\n    one 10s "x" \\"""\n    { two\n    """ k=1\n  c\n}\nd """\n  x\n  """\ne ""\n'
RAW = 'a {\n  b #"""\n    one 10s "x"\n    { two\n    """# k=1\n  c\n}\nd #"""\n  x\n  """#\n'


@pytest.mark.parametrize(
    "at", [found.start() + each for found in re.finditer(r'(?<!\\)"""', MULTILINE) for each in range(3)]
)
def test_a_quote_lost_around_lines_is_one_problem(at: int) -> None:
    parsed = kdl.parse(MULTILINE[:at] + MULTILINE[at + 1 :])

    assert [(each.code, each.line) for each in parsed.problems] == [
        (Code.UNCLOSED_STRING, MULTILINE.count("\n", 0, at) + 1)
    ]
    assert kdl.print_document(parsed.document) == kdl.print_document(kdl.parse(MULTILINE).document)


@pytest.mark.parametrize("at", [each.start() + at for each in re.finditer('"""#', RAW) for at in range(4)])
def test_what_is_lost_after_raw_lines_is_one_problem(at: int) -> None:
    parsed = kdl.parse(RAW[:at] + RAW[at + 1 :])

    assert [(each.code, each.line) for each in parsed.problems] == [
        (Code.UNCLOSED_STRING, RAW.count("\n", 0, at) + 1)
    ]
    assert kdl.print_document(parsed.document) == kdl.print_document(kdl.parse(RAW).document)


def test_lines_without_a_closing_quote_may_have_other_mistakes() -> None:
    problems = kdl.parse('a """\n  \\q\n  ""\nb """\n  x\n  """').problems

    assert [(each.code, each.line) for each in problems] == [(Code.BAD_ESCAPE, 2), (Code.UNCLOSED_STRING, 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a ""\n  x true\n  """', '1:3: expected """ before the lines of a text, got "" (write """)'),
        ('a """\n  x\n  ""', '3:3: expected """ after the lines of a text, got "" (write """)'),
        ('a #"""\n  x\n  """', '3:3: expected """# after the lines of a text, got """ (write """#)'),
        (
            'a """\n x\n  ""',
            '1:3: expected """ after this """, got the end of the file (write """ on a line of its own)',
        ),
        (
            'a ##"""\n  x\n  ""\n',
            '1:3: expected """## after this ##""", got the end of the file (write """## on a line of its own)',
        ),
    ],
)
def test_the_quotes_around_lines_are_suggested(text: str, expected: str) -> None:
    assert [str(problem) for problem in kdl.parse(text).problems] == [expected]


def test_an_empty_text_before_other_lines_stays_empty() -> None:
    problems = kdl.parse('a ""\nb true\nc """\n  x\n  """\nd """x\n  """').problems

    assert [each.code for each in problems] == [Code.BARE_KEYWORD, Code.BAD_MULTILINE_STRING]


def test_of_two_empty_texts_the_one_right_before_the_lines_lacks_a_quote() -> None:
    parsed = kdl.parse('a ""\nb ""\n  x\n  """')

    assert [(each.code, each.line) for each in parsed.problems] == [(Code.UNCLOSED_STRING, 2)]
    assert kdl.print_document(parsed.document) == 'a ""\nb "x"\n'


def test_an_empty_text_before_lines_that_are_not_indented_stays_empty() -> None:
    problems = kdl.parse('a ""\nb true\n  """\n  x\n  """').problems

    assert [each.code for each in problems] == [Code.BARE_KEYWORD]


def test_more_empty_texts_than_problems_stay_empty() -> None:
    parsed = kdl.parse('a ""\n x\n """\n' * (kdl.MAX_PROBLEMS + 2) + "b true")

    assert parsed.problems[-1].code is Code.TOO_MANY_PROBLEMS

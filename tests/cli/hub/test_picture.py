"""Problems drawn for people."""

from __future__ import annotations

import click
import pytest

from sentinel.cli.hub.picture import Pictures
from sentinel.core.proxy.problem import Level, Problem, Severity


def draw(
    source: str | bytes, line: int | None = 1, column: int | None = 1, *, suggestion: str | None = None
) -> list[str]:
    data = source.encode() if isinstance(source, str) else source
    problem = Problem(Level.SYNTAX, Severity.ERROR, "code", line, column, "expected x, got y", suggestion)
    return list(Pictures("f.kdl", data, is_colored=False).draw(problem))


@pytest.mark.parametrize(
    ("source", "column", "expected"),
    [
        ("a true\n", 3, [" 1 | a true", "   |   ^^^^"]),
        ("a\ttrue\n", 3, [" 1 | a    true", "   |      ^^^^"]),
        ("日本 é e\u0301 true", 9, [" 1 | 日本 é e\u0301 true", "   |          ^^^^"]),
        ("a 日本", 3, [" 1 | a 日本", "   |   ^^^^"]),
        ("a C:\\x 1", 3, [" 1 | a C:\\x 1", "   |   ^^^^"]),
        ("a", 2, [" 1 | a", "   |  ^"]),
        ("", 1, [" 1 |", "   | ^"]),
        ('a "x y" 1', 3, [' 1 | a "x y" 1', "   |   ^^^^^"]),
        ('a "x y', 3, [' 1 | a "x y', "   |   ^^^^"]),
        ("a [1, 2] 3", 3, [" 1 | a [1, 2] 3", "   |   ^^^^^^"]),
        ("a [1, 2", 3, [" 1 | a [1, 2", "   |   ^"]),
        ("\ufeffa true", 3, [" 1 | a true", "   |   ^^^^"]),
        ("a \x1b[31m", 3, [" 1 | a \\x1b[31m", "   |   ^^^^"]),
        ("a \u202eb", 3, [" 1 | a \\u202eb", "   |   ^^^^^^"]),
        (b"a \xff\xfe b", 3, [" 1 | a \\xff\\xfe b", "   |   ^^^^^^^^"]),
    ],
)
def test_the_carets_stand_below_what_is_meant(source: str | bytes, column: int, expected: list[str]) -> None:
    assert draw(source, 1, column)[1:] == expected


def test_the_gutter_is_as_wide_as_the_line_number() -> None:
    assert draw("\n" * 99 + "a b", 100, 3, suggestion="write c") == [
        "f.kdl:100:3: error: expected x, got y [code]",
        " 100 | a b",
        "     |   ^",
        "     = write c",
    ]


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\u2028", "\u0085", "\x0c"])
def test_lines_end_where_kdl_ends_them(newline: str) -> None:
    assert draw(f"a{newline}b c", 2, 3)[1] == " 2 | b c"


def test_of_a_long_line_the_surroundings_of_the_place_are_shown() -> None:
    _, line, carets = draw("x " * 5_000 + "true" + " y" * 5_000, 1, 10_001)

    assert len(line) < 120
    assert line[carets.index("^") :].startswith("true")
    assert carets.count("^") == 4
    assert line.count("…") == 2


def test_a_very_long_piece_is_marked_up_to_the_end_of_what_is_shown() -> None:
    _, line, carets = draw("a " + "x" * 500, 1, 3)

    assert len(carets) <= len(line)


def test_a_problem_of_the_whole_file_has_no_picture() -> None:
    assert draw("a", None, None, suggestion="write less") == [
        "f.kdl: error: expected x, got y [code]",
        "  = write less",
    ]


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    problem = Problem(Level.SYNTAX, Severity.WARNING, "code", 1, 1, "got \x1b[0m", "write \x07")

    lines = list(Pictures("a\x1bb", b"x", is_colored=False).draw(problem))

    assert "\x1b" not in "".join(lines)
    assert "\x07" not in "".join(lines)


def test_colours_change_nothing_but_the_colour() -> None:
    problem = Problem(Level.SYNTAX, Severity.WARNING, "code", 1, 3, "expected x, got y", "write x")

    plain, colored = (list(Pictures("f.kdl", b"a y", is_colored=each).draw(problem)) for each in (False, True))

    assert plain != colored
    assert [click.unstyle(line) for line in colored] == plain

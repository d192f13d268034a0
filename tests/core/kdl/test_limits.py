"""No input takes too much time, memory or stack."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code


def codes(text: str | bytes) -> list[Code]:
    return [problem.code for problem in kdl.parse(text).problems]


@pytest.mark.parametrize("unit", [" ", b" "])
def test_a_file_may_have_two_mebibytes(unit: str | bytes) -> None:
    assert kdl.parse(unit * kdl.MAX_BYTES).is_valid

    problem = kdl.parse(unit * (kdl.MAX_BYTES + 1)).problems[0]

    assert (problem.code, problem.line, problem.column) == (Code.TOO_LARGE, None, None)
    assert str(problem) == "expected at most 2097152 bytes, got more"


def test_the_size_of_a_text_is_counted_in_bytes() -> None:
    assert codes("é" * (kdl.MAX_BYTES // 2 + 1)) == [Code.TOO_LARGE]


def test_the_limits_are_those_that_are_promised() -> None:
    assert (kdl.MAX_BYTES, kdl.MAX_DEPTH) == (2 * 1024 * 1024, 64)


def test_blocks_may_be_64_deep() -> None:
    deepest = "a{" * kdl.MAX_DEPTH + "}" * kdl.MAX_DEPTH
    deeper = "a{" * (kdl.MAX_DEPTH + 2) + "}" * (kdl.MAX_DEPTH + 2)

    assert codes(deepest) == []
    problems = kdl.parse(deeper + "\nb true").problems
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        (Code.TOO_DEEP, 1, 2 * kdl.MAX_DEPTH + 2),
        (Code.BARE_KEYWORD, 2, 3),
    ]


def test_a_block_that_is_too_deep_may_lack_its_end() -> None:
    assert codes("a{" * 100_000).count(Code.UNCLOSED_BLOCK) == kdl.MAX_DEPTH


@pytest.mark.parametrize("text", ["1" * 400, "0x" + "f" * 398, "1e" + "9" * 398])
def test_a_number_may_have_400_characters(text: str) -> None:
    parsed = kdl.parse(f"a {text}")

    assert parsed.is_valid
    assert kdl.parse(kdl.print_document(parsed.document)).document == parsed.document
    assert codes(f"a {text}1") == [Code.NUMBER_TOO_LONG]


def test_a_long_number_is_no_name_and_no_item_of_a_list() -> None:
    long = "1" * 5_000

    assert codes(long) == [Code.NUMERIC_NAME]
    assert codes(f"a [{long}]") == [Code.ARRAY]


def test_comments_may_be_nested_without_limit() -> None:
    assert codes("/*" * 100_000 + "*/" * 100_000) == []


def test_a_file_that_is_not_kdl_has_a_bounded_number_of_problems() -> None:
    problems = kdl.parse("= \n" * 5_000).problems

    assert len(problems) == kdl.MAX_PROBLEMS + 1
    assert problems[-1].code is Code.TOO_MANY_PROBLEMS
    assert (problems[-1].line, problems[-1].column) == (kdl.MAX_PROBLEMS, 1)
    assert "4000 more problems" in problems[-1].message


def test_problems_of_a_token_beyond_the_limit_are_counted() -> None:
    problems = kdl.parse('a "' + "\\q" * 1_500 + '"').problems

    assert "500 more problems" in problems[-1].message


HUNGRY = ["a;", "a a=1\n", '\\"\n', "\\", "\x00\n", "404\n", "a/*\n", "a 'b'\n"]
HUNGRY_TO_UPGRADE = [".5 ", "a/*\n", '\\"\n', "\\q;"]
HOSTILE = [
    *HUNGRY,
    *("a\n", "a ", "a{}", '"\n', "é\n", "true "),
    *(
        "a{",
        "{",
        "}",
        "(",
        "(a)",
        "[",
        "[a\n",
        "=",
        "a=1 ",
        ";",
        "/",
        "/-",
        "/*",
        "//\n",
        "*/",
        "#",
        "1 ",
        ".5 ",
        ",",
    ),
    *(
        '"',
        '#"a\n',
        'r"\n',
        'r#"a\n',
        '"""\n',
        '"a"b',
        '"a",',
        '"\\x" ',
        'a "x\n y"\n',
        *(
            'a ""\n',
            'a ""\n"""\n',
            'a """\n""\n',
            'a #"""\n""#\n',
            "/ a\n",
            "a [\n b\n}\n",
            "a {\n]\n",
            "{{",
            "}}",
        ),
        "\\\n",
        "\ufeff",
        "a [1]\n",
        *("a/*\n", "a /*\n", "/*/", "a/**/", "'a ", "“a “", "a 'b c'\n", 'r"a\n', 'r#"a\n', 'r##"a"#\n'),
        *("[a]b ", "a(b ", "a(b)", "/?a=", '"a":', "a\n b\n}\n"),
    ),
]


def peak_memory(read: Callable[[bytes], object], source: bytes) -> int:
    tracemalloc.start()
    try:
        read(source)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unit", HUNGRY)
def test_memory_stays_below_a_hundred_times_the_file(unit: str) -> None:
    source = (unit * (20_000 // len(unit))).encode()

    assert peak_memory(kdl.parse, source) < 100 * len(source)


@pytest.mark.parametrize("unit", HUNGRY_TO_UPGRADE)
def test_an_upgrade_stays_below_a_hundred_times_the_file(unit: str) -> None:
    source = (unit * (20_000 // len(unit))).encode()

    assert peak_memory(kdl.upgrade, source) < 100 * len(source)


@pytest.mark.parametrize("unit", ["\x00\n", "a{}"])
def test_a_small_file_takes_less_than_a_megabyte(unit: str) -> None:
    assert peak_memory(kdl.upgrade, unit.encode() * 1_000) < 1_000_000


@pytest.mark.parametrize("unit", HOSTILE)
def test_repeated_text_is_read_and_upgraded(unit: str) -> None:
    upgraded = kdl.upgrade(unit * 300)

    assert kdl.parse(upgraded.text).problems == upgraded.problems


@pytest.mark.parametrize("unit", ['#"', '"#', '"a', '\\"', '"{ ', " k="])
def test_a_long_line_takes_no_longer_than_many_short_ones(unit: str) -> None:
    """Looking for the end of the line once per string would take minutes."""
    text = 'a "' + unit * (200_000 // len(unit))

    assert kdl.parse(text).document.nodes[0].name == "a"

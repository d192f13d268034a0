"""The difference of two texts."""

from __future__ import annotations

import difflib
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.line_diff import unified_diff
from tests.support.examples import examples

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
MISSING_NEWLINE = "\n\\ No newline at end of file\n"


def diff(before: str, after: str) -> str:
    return unified_diff(before, after, before_name="a@1", after_name="a@2")


def split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def patched(before: str, difference: str) -> str:
    """Apply a difference, and check that its removed and equal lines and its numbers are right."""
    old, new, at = split(before), list[str](), 0
    lines = split(difference.replace(MISSING_NEWLINE, "\0"))[2:] if difference else []
    lines = [part for line in lines for part in line.replace("\0", "\0\n").split("\n") if part]
    for line in lines:
        found = HUNK.match(f"{line}\n")
        if found is not None:
            start = int(found[1]) - (found[2] != "0")
            new += old[at:start]
            at = start
            assert len(new) == int(found[3]) - (found[4] != "0")
            continue
        text = line[1:].removesuffix("\0") + ("" if line.endswith("\0") else "\n")
        if line[0] in " -":
            assert old[at] == text
            at += 1
        if line[0] in " +":
            new.append(text)
    return "".join(new + old[at:])


def test_equal_texts_have_no_difference() -> None:
    assert diff("a\n", "a\n") == ""


def test_a_changed_line_is_shown_with_three_lines_around_it() -> None:
    before = "".join(f"{number}\n" for number in range(10))

    assert diff(before, before.replace("5", "five")) == (
        "--- a@1\n+++ a@2\n@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "hunk"),
    [
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\r\nb", "a\nb", "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\n\\ No newline at end of file\n"),
    ],
)
def test_ends_of_texts_are_shown_as_by_diff(before: str, after: str, hunk: str) -> None:
    assert diff(before, after) == f"--- a@1\n+++ a@2\n{hunk}"


def test_a_block_that_moves_among_equal_lines_leaves_the_rest_equal() -> None:
    blocks = [f"route {number} {{\n  }}\n}}\n" for number in range(6)]

    found = diff("".join(blocks), "".join([*blocks[1:], blocks[0]]))

    assert sum(line.startswith(("+", "-")) for line in found.splitlines()[2:]) == 6


def test_what_is_too_costly_to_compare_is_shown_as_replaced() -> None:
    before = "".join(f"{number % 7}\n{number % 11}\n" for number in range(400))
    after = "".join(f"{number % 11}\n{number % 7}\n" for number in range(400))

    found = diff(before, after)

    assert patched(before, found) == after
    assert sum(line.startswith("-") for line in found.splitlines()) > 750


def test_every_other_line_of_a_large_text_may_change() -> None:
    before = "".join(f"{number}\n}}\n" for number in range(3_000))
    after = "".join(f"{number}\n}} // {number}\n" for number in range(3_000))

    found = diff(before, after)

    assert patched(before, found) == after
    assert sum(line.startswith(" ") for line in found.splitlines()) == 3_000


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "}\n", "x\r\n", "\n", "é\u2028\n"]), max_size=12)
TEXTS = st.builds(lambda lines, end: "".join(lines) + end, LINES, st.sampled_from(["", "a", "}"]))


@hypothesis.given(before=TEXTS, after=TEXTS)
@hypothesis.settings(max_examples=examples(400))
def test_a_difference_leads_from_one_text_to_the_other(before: str, after: str) -> None:
    assert patched(before, diff(before, after)) == after


@hypothesis.given(before=LINES, at=st.integers(0, 12), lines=LINES)
@hypothesis.settings(max_examples=examples(100))
def test_one_change_is_shown_like_difflib_shows_it(before: list[str], at: int, lines: list[str]) -> None:
    old = [f"{number} {line}" for number, line in enumerate(before)]
    new = [*old[:at], *(f"new {line}" for line in lines), *old[at + 1 :]]

    expected = "".join(difflib.unified_diff(old, new, "a@1", "a@2"))

    assert diff("".join(old), "".join(new)) == expected

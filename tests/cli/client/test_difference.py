"""From one value to another: the patch leads there, and the lines show it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sentinel.cli.client import difference
from sentinel.core import merge_patch
from sentinel.core.json import Json

LEAVES = st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | st.text("ab", max_size=2)
KEYS = st.text("abc", min_size=1, max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner | st.none(), max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(before=OBJECTS | st.dictionaries(KEYS, st.none(), max_size=2), after=OBJECTS)
def test_the_patch_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    patch = difference.patch(before, after)

    reached = merge_patch.apply(before, patch)
    assert merge_patch.canonical(reached) == merge_patch.canonical(after)


@given(value=OBJECTS)
def test_nothing_leads_to_the_same(value: Any) -> None:
    assert difference.patch(value, value) == {}
    assert list(difference.lines(value, value, is_coloured=False)) == []


def test_numbers_that_are_equal_do_not_differ() -> None:
    assert difference.patch({"a": 1, "b": [1.0]}, {"a": 1.0, "b": [1]}) == {}


def test_true_is_not_one() -> None:
    assert difference.patch({"a": 1}, {"a": True}) == {"a": True}


def test_lines_show_what_goes_and_what_comes() -> None:
    lines = list(difference.lines({"b": 1, "a": [1]}, {"a": [1], "c": "x"}, is_coloured=False))

    assert lines == [" a:", " - 1", "-b: 1", "+c: x"]


def test_keys_that_look_like_a_diff_are_shown() -> None:
    assert list(difference.lines({"--a": 1}, {"++b": 1}, is_coloured=False)) == ["---a: 1", "+++b: 1"]


def test_what_is_far_from_any_change_is_left_out() -> None:
    before: dict[str, Json] = {f"k{number:02}": number for number in range(20)}

    lines = list(difference.lines(before, {**before, "k00": -1, "k19": -1}, is_coloured=False))

    assert lines.count(" …") == 1
    assert len(lines) == 11


def test_colours_are_for_terminals() -> None:
    lines = list(difference.lines({}, {"a": 1}, is_coloured=True))

    assert lines[-1] == "\x1b[32m+a: 1\x1b[0m"

"""Merge patches and diffs between two values."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sentinel.cli.client import diff
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
def test_the_patch_turns_one_value_into_the_other(before: Any, after: Any) -> None:
    patch = diff.make_patch(before, after)

    patched = merge_patch.apply(before, patch)
    assert merge_patch.canonical(patched) == merge_patch.canonical(after)


@given(value=OBJECTS)
def test_equal_values_have_no_difference(value: Any) -> None:
    assert diff.make_patch(value, value) == {}
    assert list(diff.render(value, value, is_colored=False)) == []


def test_equal_numbers_of_different_types_do_not_differ() -> None:
    assert diff.make_patch({"a": 1, "b": [1.0]}, {"a": 1.0, "b": [1]}) == {}


def test_true_differs_from_one() -> None:
    assert diff.make_patch({"a": 1}, {"a": True}) == {"a": True}


def test_the_diff_shows_removed_and_added_lines() -> None:
    lines = list(diff.render({"b": 1, "a": [1]}, {"a": [1], "c": "x"}, is_colored=False))

    assert lines == [" a:", " - 1", "-b: 1", "+c: x"]


def test_keys_that_look_like_a_diff_are_shown() -> None:
    assert list(diff.render({"--a": 1}, {"++b": 1}, is_colored=False)) == ["---a: 1", "+++b: 1"]


def test_lines_far_from_a_change_are_omitted() -> None:
    before: dict[str, Json] = {f"k{number:02}": number for number in range(20)}

    lines = list(diff.render(before, {**before, "k00": -1, "k19": -1}, is_colored=False))

    assert lines.count(" …") == 1
    assert len(lines) == 11


def test_added_lines_are_green_if_colored() -> None:
    lines = list(diff.render({}, {"a": 1}, is_colored=True))

    assert lines[-1] == "\x1b[32m+a: 1\x1b[0m"

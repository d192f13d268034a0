"""Merge patches as in RFC 7396, and the canonical encoding."""

from __future__ import annotations

import copy
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core import merge_patch
from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-3, 3).map(float),
    st.text(max_size=4),
)
names = st.sampled_from(["a", "b", "c", "é", ""])
documents: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=12,
)


def without_nulls(value: Json) -> Json:
    """Return the value without null members. Nulls in lists stay: a merge patch does not change lists."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return value


def same(one: Json, other: Json) -> bool:
    """Compare as JSON. For Python, True equals 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if _is_large(one) or _is_large(other):
        return type(one) is type(other) and one == other
    return one == other


def _is_large(value: Json) -> bool:
    return isinstance(value, int | float) and not -(2**63) <= value < 2**63


def rewritten(value: Json, random: Random) -> Json:
    """Return an equal value with members in another order and integers as floats."""
    if isinstance(value, dict):
        members = [(name, rewritten(member, random)) for name, member in value.items()]
        random.shuffle(members)
        return dict(members)
    if isinstance(value, list):
        return [rewritten(item, random) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and int(float(value)) == value < 2**63 - 1:
        return float(value)
    return value


class TestApply:
    @pytest.mark.parametrize(
        ("target", "patch", "expected"),
        [
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]),
            ({"a": "foo"}, None, None),
            ({"a": "foo"}, "bar", "bar"),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ],
    )
    def test_the_examples_of_the_rfc(self, target: Json, patch: Json, expected: Json) -> None:
        assert merge_patch.apply(target, patch) == expected

    @given(documents, documents)
    def test_the_arguments_are_not_changed(self, target: Json, patch: Json) -> None:
        before = copy.deepcopy((target, patch))

        merge_patch.apply(target, patch)

        assert (target, patch) == before

    @given(documents, documents)
    def test_applying_a_patch_is_idempotent(self, target: Json, patch: Json) -> None:
        once = merge_patch.apply(target, patch)

        assert same(merge_patch.apply(once, patch), once)

    @given(documents)
    def test_an_empty_patch_changes_no_object(self, target: Json) -> None:
        assert same(merge_patch.apply(target, {}), target if isinstance(target, dict) else {})

    @given(documents, documents.map(without_nulls))
    def test_the_members_of_a_patch_without_nulls_are_set(self, target: Json, patch: Json) -> None:
        merged = merge_patch.apply(target, patch)

        assert same(merge_patch.apply(merged, patch), merged)
        if not isinstance(target, dict):
            assert same(merged, patch)


class TestCanonical:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({"b": 1, "a": {"d": [], "c": None}}, b'{"a":{"c":null,"d":[]},"b":1}'),
            (1.0, b"1"),
            (-0.0, b"0"),
            (1e18, b"1000000000000000000"),
            (1.5, b"1.5"),
            (-(2.0**63), b"-9223372036854775808"),
            (2.0**63, b"9.223372036854776e18"),
            (1e300, b"1e300"),
            ([True, 1, "1"], b'[true,1,"1"]'),
            ({"é": "\u2028"}, '{"é":"\u2028"}'.encode()),
        ],
    )
    def test_keys_are_sorted_and_whole_numbers_are_integers(self, value: Json, expected: bytes) -> None:
        assert canonical(value) == expected

    @given(documents, st.randoms(use_true_random=False))
    def test_equal_values_have_equal_bytes(self, value: Json, random: Random) -> None:
        other = rewritten(value, random)

        assert same(value, other)
        assert canonical(value) == canonical(other)

    @given(documents, documents)
    def test_bytes_are_equal_exactly_if_the_values_are(self, one: Json, other: Json) -> None:
        assert (canonical(one) == canonical(other)) is same(one, other)

    @given(documents)
    def test_a_decoded_value_encodes_to_the_same_bytes(self, value: Json) -> None:
        read: Json = msgspec.json.decode(canonical(value))

        assert same(read, value)
        assert canonical(read) == canonical(value)

    def test_beyond_64_bits_integers_and_floats_are_kept_apart(self) -> None:
        assert canonical(10**20) != canonical(1e20)

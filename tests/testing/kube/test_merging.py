"""Comparing, merging and pruning field by field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.testing.kube.field_sets import fields_of
from sentinel.testing.kube.field_types import ATOMIC, MAP, SET, STRUCT, FieldType, keyed, struct
from sentinel.testing.kube.merging import Comparison, compare, merge, remove
from tests.support.kube.typed_values import EVERY_FIELD, objects

NONE: frozenset[tuple[str, ...]] = frozenset()
NAMED = struct(a=keyed("name"))
KEY_FIELDS = ("f:name", "f:port", "f:protocol")
"""Removing only the key of an item would make it another item."""


def names(*each: str) -> list[Json]:
    return [{"name": name} for name in each]


@given(objects)
def test_an_object_does_not_differ_from_itself(body: dict[str, Json]) -> None:
    assert compare(EVERY_FIELD, body, body) == Comparison(NONE, NONE, NONE)


@given(objects, objects)
def test_a_field_differs_in_one_way_only(one: dict[str, Json], other: dict[str, Json]) -> None:
    found = compare(EVERY_FIELD, one, other)

    assert not found.removed & found.modified
    assert not found.removed & found.added
    assert not found.modified & found.added


@given(objects, objects)
def test_a_comparison_has_an_opposite(one: dict[str, Json], other: dict[str, Json]) -> None:
    forth, back = compare(EVERY_FIELD, one, other), compare(EVERY_FIELD, other, one)

    assert (forth.removed, forth.modified, forth.added) == (back.added, back.modified, back.removed)


@given(objects, objects)
def test_only_equal_objects_do_not_differ(one: dict[str, Json], other: dict[str, Json]) -> None:
    found = compare(EVERY_FIELD, one, other)

    if not (found.removed or found.modified or found.added):
        assert fields_of(EVERY_FIELD, one) == fields_of(EVERY_FIELD, other)


@given(objects, objects)
def test_merging_twice_equals_merging_once(live: dict[str, Json], applied: dict[str, Json]) -> None:
    once = merge(EVERY_FIELD, live, applied)

    assert canonical(merge(EVERY_FIELD, once, applied)) == canonical(once)


@given(objects, objects)
def test_merging_removes_nothing_and_adds_everything(live: dict[str, Json], applied: dict[str, Json]) -> None:
    merged = merge(EVERY_FIELD, live, applied)

    found = fields_of(EVERY_FIELD, merged)
    assert not compare(EVERY_FIELD, live, merged).removed
    assert fields_of(EVERY_FIELD, applied) - found <= {
        path for path in fields_of(EVERY_FIELD, applied) if len(path) == 1
    }
    assert not compare(EVERY_FIELD, merged, merge(EVERY_FIELD, merged, applied)).modified


@given(objects)
def test_an_object_merged_with_itself_is_unchanged(body: dict[str, Json]) -> None:
    assert merge(EVERY_FIELD, body, body) == body


@given(objects, st.data())
def test_what_is_removed_is_gone(body: dict[str, Json], data: st.DataObject) -> None:
    all_fields = fields_of(EVERY_FIELD, body)
    removable = sorted(path for path in all_fields if path[-1] not in KEY_FIELDS)
    chosen = frozenset(data.draw(st.lists(st.sampled_from(removable), max_size=3)) if removable else [])

    left = fields_of(EVERY_FIELD, remove(EVERY_FIELD, body, chosen))

    gone = {path for path in all_fields if any(path[: len(root)] == root for root in chosen)}
    assert not left & gone
    assert all_fields - gone <= left


@given(objects)
def test_removing_nothing_changes_nothing(body: dict[str, Json]) -> None:
    assert remove(EVERY_FIELD, body, NONE) == (body or None)


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        (names("a", "b"), names("c"), names("a", "b", "c")),
        (names("a", "b"), names("b", "a"), names("b", "a")),
        (names("a", "x", "b"), names("b", "a"), names("x", "b", "a")),
        (names("a", "b", "c"), names("c", "d"), names("a", "b", "c", "d")),
        (names("a"), [], names("a")),
        ([], names("a"), names("a")),
        (names("a", "a"), names("a"), names("a")),
    ],
)
def test_a_merged_list_has_the_order_of_the_applied_one(live: Json, applied: Json, merged: Json) -> None:
    assert merge(NAMED, {"a": live}, {"a": applied}) == {"a": merged}


@pytest.mark.parametrize(
    ("kind", "live", "applied", "merged"),
    [
        (STRUCT, {"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (STRUCT, {"a": {"b": 1}}, {"a": None}, {"a": {"b": 1}}),
        (STRUCT, {"a": 1}, {"a": None}, {"a": None}),
        (STRUCT, {"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        (struct(a=ATOMIC), {"a": {"b": 1}}, {"a": {"c": 1}}, {"a": {"c": 1}}),
        (struct(a=SET), {"a": ["x"]}, {"a": ["y"]}, {"a": ["x", "y"]}),
        (struct(a=MAP), {"a": {"b": "1"}}, {"a": {"c": "2"}}, {"a": {"b": "1", "c": "2"}}),
    ],
)
def test_values_are_merged_by_their_type(kind: FieldType, live: Json, applied: Json, merged: Json) -> None:
    assert merge(kind, live, applied) == merged


@pytest.mark.parametrize(
    ("before", "after", "removed", "modified", "added"),
    [
        ({}, {"a": {"b": 1}}, "", "", "f:a f:a/f:b"),
        ({"a": {"b": 1}}, {}, "f:a f:a/f:b", "", ""),
        ({"a": {"b": 1}}, {"a": {}}, "f:a/f:b", "", ""),
        ({"a": {}}, {}, "f:a", "", ""),
        ({"a": 1}, {"a": True}, "", "f:a", ""),
        ({"a": 1}, {"a": 1.0}, "", "", ""),
        ({"a": {"b": 1}}, {"a": [1]}, "f:a/f:b", "f:a", ""),
        ({"a": [1]}, {"a": [1, 2]}, "", "f:a", ""),
        ({"a": None}, {"a": {}}, "", "f:a", ""),
    ],
)
def test_a_comparison_names_each_field(before: Json, after: Json, removed: str, modified: str, added: str) -> None:
    found = compare(STRUCT, before, after)

    texts = [
        " ".join("/".join(path) for path in sorted(each)) for each in (found.removed, found.modified, found.added)
    ]
    assert texts == [removed, modified, added]


def test_repeated_items_are_compared_as_one_value() -> None:
    item = ("f:a", 'k:{"name":"a"}')

    repeated = compare(NAMED, {"a": names("a", "a")}, {"a": [{"name": "a", "x": 1}, {"name": "a"}]})
    added = compare(NAMED, {"a": names("a")}, {"a": names("a", "a")})
    removed = compare(NAMED, {"a": names("a", "a")}, {"a": names("a")})

    assert repeated == Comparison(NONE, frozenset({item}), NONE)
    assert added == Comparison(frozenset({(*item, "f:name")}), NONE, frozenset({item}))
    assert removed == Comparison(frozenset({item}), NONE, frozenset({(*item, "f:name")}))

"""Compare, merge and prune objects field by field, as server-side apply does.

The rules are those of Kubernetes' structured-merge-diff library. Values are never changed in place; results may
share parts with the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.testing.kube.field_sets import FieldSet, Path, field_element, fields_of, item_element
from sentinel.testing.kube.field_types import FieldType


class _Absent(Enum):
    """The type of `ABSENT`: there is no such member. JSON's null is something else."""

    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
Value: TypeAlias = "Json | _Absent"


class Comparison(msgspec.Struct, frozen=True):
    """The fields in which two values differ. No field is in two of the sets."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    def without(self, ignored: FieldSet) -> Comparison:
        """Return the comparison without fields that are in `ignored` or below a field in it."""

        def kept(fields: FieldSet) -> FieldSet:
            return frozenset(path for path in fields if not any(path[: len(root)] == root for root in ignored))

        return Comparison(kept(self.removed), kept(self.modified), kept(self.added)) if ignored else self


def compare(kind: FieldType, before: Json, after: Json) -> Comparison:
    """Return what changed from one value to the other."""
    comparing = _Comparing()
    comparing.compare(kind, before, after, ())
    sets = (comparing.removed, comparing.modified, comparing.added)
    return Comparison(*(frozenset(path for path in found if path) for found in sets))


class _Comparing:
    def __init__(self) -> None:
        self.removed: set[Path] = set()
        self.modified: set[Path] = set()
        self.added: set[Path] = set()

    def compare(self, kind: FieldType, before: Value, after: Value, path: Path) -> None:
        if _are_leaves(kind, before, after):
            self._compare_leaves(before, after, path)
            return
        if _has_items(kind, before, after):
            self._compare_items(kind, _as_list(before), _as_list(after), path)
        elif _has_members(before, after):
            old, new = _as_dict(before), _as_dict(after)
            for name in old.keys() | new.keys():
                member, _ = kind.member(name)
                here = (*path, field_element(name))
                self.compare(member, old.get(name, ABSENT), new.get(name, ABSENT), here)
        else:  # an object became a list, or a scalar one of them
            self.removed |= {(*path, *inner) for inner in _inner_fields(kind, before)}
            self.added |= {(*path, *inner) for inner in _inner_fields(kind, after)}
            self.modified.add(path)
            return
        if before is ABSENT:
            self.added.add(path)
        elif after is ABSENT:
            self.removed.add(path)

    def _compare_leaves(self, before: Value, after: Value, path: Path) -> None:
        if before is ABSENT:
            self.added.add(path)
        elif after is ABSENT:
            self.removed.add(path)
        elif canonical(before) != canonical(after):
            self.modified.add(path)

    def _compare_items(self, kind: FieldType, before: list[Json], after: list[Json], path: Path) -> None:
        old, new = _grouped(kind, before), _grouped(kind, after)
        for element in old.keys() | new.keys():
            here = (*path, element)
            was, became = old.get(element, []), new.get(element, [])
            if len(was) < 2 and len(became) < 2:
                self.compare(kind.item_type, was[0] if was else ABSENT, became[0] if became else ABSENT, here)
            elif len(was) > 1 and len(became) > 1:
                # Repeated items cannot be told apart, so they are one value.
                self._compare_leaves(was, became, here)
            elif len(was) > 1:
                if became:
                    self.compare(kind.item_type, ABSENT, became[0], here)
                    self.added.discard(here)
                self.removed.add(here)
            else:
                if was:
                    self.compare(kind.item_type, was[0], ABSENT, here)
                    self.removed.discard(here)
                self.added.add(here)


def merge(kind: FieldType, live: Value, applied: Json) -> Json:
    """Return `live` with every field that is in `applied`, which must not repeat keys. Nothing is removed.

    Lists with keys have the order of `applied` where that names at least two of their items.
    """
    if _are_leaves(kind, live, applied):
        return applied
    if _has_items(kind, live, applied):
        return _merge_items(kind, _as_list(live), _as_list(applied))
    if _has_members(live, applied):
        merged, new = dict(_as_dict(live)), _as_dict(applied)
        for name, member in new.items():
            merged[name] = merge(kind.member(name)[0], merged.get(name, ABSENT), member)
        return merged
    return applied


def _merge_items(kind: FieldType, live: list[Json], applied: list[Json]) -> list[Json]:
    theirs = [item_element(kind, item) for item in applied]
    ours = [item_element(kind, item) for item in live]
    new = dict(zip(theirs, applied, strict=True))
    # Repeated items cannot be told apart, so they are replaced, not merged.
    old = {element: item for element, item in zip(ours, live, strict=True) if ours.count(element) == 1}
    return [
        merge(kind.item_type, old.get(element, ABSENT), new[element]) if element in new else live[position]
        for element, position in _merged_order(ours, theirs)
    ]


def _merged_order(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, int]]:
    """Return the elements of the merged list, with the position in `ours` of those that are only there.

    Items that only one list has stay where they are relative to their neighbours; shared ones have the order of
    `theirs`.
    """
    known, applied = set(ours), set(theirs)
    shared = [element for element in theirs if element in known]
    taken: set[str] = set()
    order: list[tuple[str, int]] = []
    left = right = 0
    while left < len(ours) or right < len(theirs):
        if left < len(ours) and right < len(theirs):
            if ours[left] == theirs[right]:
                order.append((ours[left], -1))
                taken.add(ours[left])
                left, right = left + 1, right + 1
                shared = shared[1:]
                continue
            if ours[left] in applied and shared and shared[0] != ours[left]:
                left += 1
                continue
        if left < len(ours):
            if ours[left] not in applied:
                order.append((ours[left], left))
                left += 1
                continue
            if ours[left] in taken:
                left += 1
        if right < len(theirs):
            order.append((theirs[right], -1))
            taken.add(theirs[right])
            shared = shared[1:] if shared and shared[0] == theirs[right] else shared
            right += 1
    return order


def remove(kind: FieldType, value: Json, fields: FieldSet) -> Json:
    """Return the value without these fields. An object or a list that loses all its members becomes null."""
    here = {path[0] for path in fields if len(path) == 1}
    inner: dict[str, set[Path]] = {}
    for path in fields:
        if len(path) > 1:
            inner.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        if kind.is_atomic:
            return None
        members: dict[str, Json] = {}
        for name, member in value.items():
            element = field_element(name)
            if element not in here:
                below = inner.get(element)
                members[name] = remove(kind.member(name)[0], member, frozenset(below)) if below else member
        return members or None
    if isinstance(value, list):
        if kind.items is None:
            return None
        items: list[Json] = []
        for item in value:
            element = item_element(kind, item)
            if element not in here:
                below = inner.get(element)
                items.append(remove(kind.item_type, item, frozenset(below)) if below else item)
        return items or None
    return value


def _are_leaves(kind: FieldType, *values: Value) -> bool:
    """Whether each is one value: scalar, atomic, or empty, so that an empty object differs from none."""
    return kind.is_atomic or not any(
        bool(value) and (isinstance(value, dict) or (isinstance(value, list) and kind.items is not None))
        for value in values
    )


def _has_members(one: Value, other: Value) -> bool:
    return all(isinstance(value, dict) or value is None or value is ABSENT for value in (one, other))


def _has_items(kind: FieldType, one: Value, other: Value) -> bool:
    values = (one, other)
    return (
        kind.items is not None
        and any(isinstance(value, list) for value in values)
        and all(isinstance(value, list) or value is None or value is ABSENT for value in values)
    )


def _as_dict(value: Value) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Value) -> list[Json]:
    return value if isinstance(value, list) else []


def _inner_fields(kind: FieldType, value: Value) -> FieldSet:
    """The fields below a value that is replaced by one of another shape."""
    return fields_of(kind, value) if isinstance(value, dict | list) else frozenset()


def _grouped(kind: FieldType, items: list[Json]) -> dict[str, list[Json]]:
    groups: dict[str, list[Json]] = {}
    for item in items:
        groups.setdefault(item_element(kind, item), []).append(item)
    return groups

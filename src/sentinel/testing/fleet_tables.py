"""The tables of the fleet store in memory: what is kept, and the sorted keys by which lists are read.

A list is read from the place where it begins: keys are kept sorted for every order, and the place is found by
bisection, so that a walk costs the same on its last page as on its first. Whatever is only counted now and then
is counted by looking at everything. Nothing here knows of transactions: a change is undone by its opposite.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TypeAlias, TypeVar, assert_never

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Selector
from sentinel.ports.fleet_store import ListPosition, ListQuery, ListResult, OrderBy, StoredResource
from sentinel.testing.transaction import assign

K = TypeVar("K")
V = TypeVar("V")

Listing: TypeAlias = tuple[str, str | None, OrderBy]
"""The plural, the parent or None for all of them, and the order."""
SortKey: TypeAlias = tuple[str | int, str]
"""The value of a resource in one order, and its id."""

AnyKey = TypeVar("AnyKey", SortKey, tuple[datetime, str])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class FleetTables:
    """Everything that a store keeps. `resources` is changed through methods only."""

    def __init__(self) -> None:
        self.resources: dict[str, StoredResource] = {}
        self.discarded: dict[str, tuple[DiscardedReport, ...]] = {}
        """Oldest first, by resource."""
        self.history: dict[str, tuple[GenerationRecord, ...]] = {}
        """Oldest first, by resource."""
        self._names: set[tuple[str, str, str]] = set()
        self._children: dict[str, list[tuple[datetime, str]]] = {}
        self._listings: dict[Listing, list[SortKey]] = {}

    def swap(self, before: StoredResource | None, after: StoredResource | None) -> None:
        """Puts a resource in the place of what it was; None for one that was not there, or will not be."""
        if before is not None and after is not None and before.updated_time == after.updated_time:
            self.resources[after.id] = after  # a report, as a rule: it moves nowhere
            return
        if before is not None:
            del self.resources[before.id]
            self._names.remove(_name(before))
            _take(self._children, before.parent, (before.created_time, before.id))
            for listing, key in _places(before):
                _take(self._listings, listing, key)
        if after is not None:
            self.resources[after.id] = after
            self._names.add(_name(after))
            insort(self._children.setdefault(after.parent, []), (after.created_time, after.id))
            for listing, key in _places(after):
                insort(self._listings.setdefault(listing, []), key)

    def has_name(self, resource: StoredResource) -> bool:
        """Whether its name is in use among those of its kind and parent."""
        return _name(resource) in self._names

    def children_of(self, resource_id: str) -> list[StoredResource]:
        """Its direct children, oldest first."""
        return [self.resources[child] for _, child in self._children.get(resource_id, ())]

    def count_children(self, resource_id: str) -> int:
        """How many direct children it has."""
        return len(self._children.get(resource_id, ()))

    def find(self, query: ListQuery) -> ListResult:
        """A stretch of a list."""
        keys = self._listings.get((query.plural, query.parent, query.order_by), [])
        after = None if query.after is None else (query.after.value, query.after.id)
        if query.is_descending:
            positions = range((len(keys) if after is None else bisect_left(keys, after)) - 1, -1, -1)
        else:
            positions = range(0 if after is None else bisect_right(keys, after), len(keys))
        offset = query.offset if after is None else 0
        behind = (keys[position] for position in positions)
        page = list(islice(self._selected(query, behind), offset, offset + query.limit + 1))
        has_more = len(page) > query.limit
        page = page[: query.limit]
        return ListResult(
            [self.resources[resource_id].document for _, resource_id in page],
            len(page),
            sum(1 for _ in self._selected(query, keys)) if query.wants_total else None,
            ListPosition(*page[-1]) if page and has_more else None,
        )

    def _selected(self, query: ListQuery, keys: Iterable[SortKey]) -> Iterable[SortKey]:
        if not query.requirements:
            return keys
        selector = Selector(query.requirements)
        return (key for key in keys if selector.matches(self.resources[key[1]].labels))

    def expire_discarded(self, before: datetime, limit: int) -> int:
        """Deletes discarded reports that are older, at most so many; says how many."""
        old = _older(
            (
                ((resource_id, number), report.received_time)
                for resource_id, reports in self.discarded.items()
                for number, report in enumerate(reports)
            ),
            before,
            limit,
        )
        _drop(self.discarded, old)
        return len(old)

    def expire_history(self, before: datetime, limit: int) -> int:
        """Deletes generations that are older, but the newest of what is still there; says how many."""
        old = _older(
            (
                ((resource_id, number), record.time)
                for resource_id, records in self.history.items()
                for number, record in enumerate(records[:-1] if resource_id in self.resources else records)
            ),
            before,
            limit,
        )
        _drop(self.history, old)
        return len(old)


def _name(resource: StoredResource) -> tuple[str, str, str]:
    return resource.plural, resource.parent, resource.name


def _places(resource: StoredResource) -> Iterable[tuple[Listing, SortKey]]:
    """Every list that it is in, and by which key."""
    for order in OrderBy:
        key = (_value(resource, order), resource.id)
        for parent in (None, resource.parent):
            yield (resource.plural, parent, order), key


def _value(resource: StoredResource, order: OrderBy) -> str | int:
    match order:
        case OrderBy.CREATED:
            return (resource.created_time - _EPOCH) // _MICROSECOND
        case OrderBy.UPDATED:
            return (resource.updated_time - _EPOCH) // _MICROSECOND
        case OrderBy.NAME:
            return resource.name
        case OrderBy.ID:
            return resource.id
        case _:
            assert_never(order)


def _take(sorted_lists: dict[K, list[AnyKey]], name: K, key: AnyKey) -> None:
    """Takes a key out of one of several sorted lists, and away with the list where it was the last."""
    keys = sorted_lists[name]
    del keys[bisect_left(keys, key)]
    if not keys:
        del sorted_lists[name]


def _older(dated: Iterable[tuple[K, datetime]], moment: datetime, limit: int) -> set[K]:
    return set(islice((key for key, time in dated if time < moment), limit))


def _drop(records: dict[str, tuple[V, ...]], gone: set[tuple[str, int]]) -> None:
    """Takes records away by the key they are under and their number there."""
    for key in {key for key, _ in gone}:
        kept = tuple(record for number, record in enumerate(records[key]) if (key, number) not in gone)
        assign(records, key, kept or None)

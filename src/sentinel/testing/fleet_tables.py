"""The tables of the fleet store in memory, and the sorted keys for its lists.

Keys are sorted for every order and a page's start is found by bisection, so that the last page of a list costs as
much as the first. Rare queries scan everything. The tables have no transactions: a change is undone by its
reverse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import TypeAlias, TypeVar, assert_never

from sentinel.core import search
from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Selector
from sentinel.ports.fleet_store import ListPosition, ListQuery, ListResult, OrderBy, StoredResource
from sentinel.testing.transaction import assign

K = TypeVar("K")
V = TypeVar("V")

ListKey: TypeAlias = tuple[str, str | None, OrderBy]
"""The plural, the parent or None for all parents, and the order."""
SortKey: TypeAlias = tuple[str | int, str]
"""The value of a resource in one order, and its id."""

AnyKey = TypeVar("AnyKey", SortKey, tuple[datetime, str])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class FleetTables:
    """All data of a store. Only methods change `resources`."""

    def __init__(self) -> None:
        self.resources: dict[str, StoredResource] = {}
        self.discarded: dict[str, tuple[DiscardedReport, ...]] = {}
        """Oldest first, by resource."""
        self.history: dict[str, tuple[GenerationRecord, ...]] = {}
        """Oldest first, by resource."""
        self._names: set[tuple[str, str, str]] = set()
        self._children: dict[str, list[tuple[datetime, str]]] = {}
        self._lists: dict[ListKey, list[SortKey]] = {}

    def replace(self, before: StoredResource | None, after: StoredResource | None) -> None:
        """Replace a resource. Without `before` it is inserted, without `after` it is removed."""
        if before is not None and after is not None and before.updated_time == after.updated_time:
            self.resources[after.id] = after  # usually a report, which moves the resource in no list
            return
        if before is not None:
            del self.resources[before.id]
            self._names.remove(_name(before))
            _remove_key(self._children, before.parent, (before.created_time, before.id))
            for list_key, key in _list_keys(before):
                _remove_key(self._lists, list_key, key)
        if after is not None:
            self.resources[after.id] = after
            self._names.add(_name(after))
            insort(self._children.setdefault(after.parent, []), (after.created_time, after.id))
            for list_key, key in _list_keys(after):
                insort(self._lists.setdefault(list_key, []), key)

    def has_name(self, resource: StoredResource) -> bool:
        """Whether a resource of the same kind and parent has its name."""
        return _name(resource) in self._names

    def children_of(self, resource_id: str) -> list[StoredResource]:
        """The direct children, oldest first."""
        return [self.resources[child] for _, child in self._children.get(resource_id, ())]

    def count_children(self, resource_id: str) -> int:
        return len(self._children.get(resource_id, ()))

    def find(self, query: ListQuery) -> ListResult:
        keys = self._lists.get((query.plural, query.parent, query.order_by), [])
        after = None if query.after is None else (query.after.value, query.after.id)
        if query.is_descending:
            positions = range((len(keys) if after is None else bisect_left(keys, after)) - 1, -1, -1)
        else:
            positions = range(0 if after is None else bisect_right(keys, after), len(keys))
        offset = query.offset if after is None else 0
        following = (keys[position] for position in positions)
        page = list(islice(self._selected(query, following), offset, offset + query.limit + 1))
        count = min(len(page), query.limit, self._count_within(page, query.max_bytes))
        has_more = len(page) > count
        page = page[:count]
        return ListResult(
            [self.resources[resource_id].document for _, resource_id in page],
            len(page),
            sum(1 for _ in self._selected(query, keys)) if query.wants_total else None,
            ListPosition(*page[-1]) if page and has_more else None,
        )

    def _count_within(self, page: Sequence[SortKey], max_bytes: int | None) -> int:
        """How many resources have at most `max_bytes` of documents, at least one."""
        sizes = accumulate(len(self.resources[resource_id].document) for _, resource_id in page)
        return len(page) if max_bytes is None else max(1, sum(1 for size in sizes if size <= max_bytes))

    def _selected(self, query: ListQuery, keys: Iterable[SortKey]) -> Iterable[SortKey]:
        expression = query.search
        if query.requirements:
            selector = Selector(query.requirements)
            keys = (key for key in keys if selector.matches(self.resources[key[1]].labels))
        if expression is not None:
            keys = (key for key in keys if search.matches(expression, self.resources[key[1]]))
        return keys

    def expire_discarded(self, before: datetime, limit: int) -> int:
        """Delete at most `limit` older reports, and return how many."""
        old = _older_than(
            (
                ((resource_id, number), report.received_time)
                for resource_id, reports in self.discarded.items()
                for number, report in enumerate(reports)
            ),
            before,
            limit,
        )
        _delete(self.discarded, old)
        return len(old)

    def expire_history(self, before: datetime, limit: int) -> int:
        """Delete at most `limit` older generations, except the newest of existing resources; return how many."""
        old = _older_than(
            (
                ((resource_id, number), record.time)
                for resource_id, records in self.history.items()
                for number, record in enumerate(records[:-1] if resource_id in self.resources else records)
            ),
            before,
            limit,
        )
        _delete(self.history, old)
        return len(old)


def _name(resource: StoredResource) -> tuple[str, str, str]:
    return resource.plural, resource.parent, resource.name


def _list_keys(resource: StoredResource) -> Iterable[tuple[ListKey, SortKey]]:
    """Every list that contains the resource, with its sort key there."""
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


def _remove_key(sorted_lists: dict[K, list[AnyKey]], name: K, key: AnyKey) -> None:
    """Remove a key from a sorted list, and the list if it is then empty."""
    keys = sorted_lists[name]
    del keys[bisect_left(keys, key)]
    if not keys:
        del sorted_lists[name]


def _older_than(dated: Iterable[tuple[K, datetime]], before: datetime, limit: int) -> set[K]:
    return set(islice((key for key, time in dated if time < before), limit))


def _delete(records: dict[str, tuple[V, ...]], expired: set[tuple[str, int]]) -> None:
    """Delete records by their resource and index."""
    for key in {key for key, _ in expired}:
        kept = tuple(record for number, record in enumerate(records[key]) if (key, number) not in expired)
        assign(records, key, kept or None)

"""The log of changes of the fleet's resources, written in the same transaction as each change.

A change only names a resource. A reader reads the resource again, so several changes of one resource may become
one, and a resource that is read may be newer than its change. The implementations are SQLite, PostgreSQL, and
memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import Position
from sentinel.ports.fleet_store import StoredResource


class ChangedResource(NamedTuple):
    """The resource that a change is about."""

    resource_id: str
    plural: str
    parent: str
    """The id of its parent; empty if it has none."""


class PendingChanges(dict[ChangedResource, bool]):
    """The changes of one transaction, one for each resource, with `Change.may_leave`."""

    def note(self, before: StoredResource | None, after: StoredResource | None) -> None:
        """Add the change of a resource. None means that it did not exist or was removed."""
        resource = after or before
        if resource is not None and is_change(before, after):
            key = ChangedResource(resource.id, resource.plural, resource.parent)
            may_leave = after is None or (before is not None and before.labels != after.labels)
            self[key] = may_leave or self.get(key, False)


def is_change(before: StoredResource | None, after: StoredResource | None) -> bool:
    """Whether a write is a change: whether readers see a difference."""
    return before is None or after is None or before.document != after.document or before.labels != after.labels


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A resource was created, changed or removed."""

    number: int
    """Of the transaction."""
    position: Position
    """Where a reader is after this change."""
    resource: ChangedResource
    may_leave: bool
    """Whether a selector that matched it before may not match it now: it was removed or has other labels."""


class ChangePage(msgspec.Struct, frozen=True):
    """A part of the log."""

    changes: Sequence[Change]
    """In the order of their numbers. The last of each resource only."""
    position: Position
    """Where a reader is after all of them."""
    is_complete: bool
    """Whether nothing followed when it was read."""

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[tuple[int, ChangedResource, bool]],
        *,
        after: Position,
        newest: Position,
        is_complete: bool,
    ) -> ChangePage:
        """Build a page from the number, the resource and `may_leave` of each change, ascending by number.

        They are those that `newest` includes and `after` does not, or the first of them, in whole transactions.
        """
        reached = change_position.positions_after(after, newest, [number for number, _, _ in rows])
        last: dict[ChangedResource, Change] = {}
        for (number, resource, may_leave), position in zip(rows, reached, strict=True):
            earlier = last.pop(resource, None)
            may_leave = may_leave or (earlier is not None and earlier.may_leave)
            last[resource] = Change(number=number, position=position, resource=resource, may_leave=may_leave)
        return cls(list(last.values()), newest if is_complete else reached[-1], is_complete)


class CurrentResource(msgspec.Struct, frozen=True):
    """What a reader needs to know of a resource."""

    plural: str
    parent: str
    labels: Mapping[str, str]
    document: bytes


class ChangeLog(Protocol):
    """Reads the log and deletes old changes. Every call may raise `Unavailable`.

    A reader that begins at `newest` and goes on from the position of each page receives every change that is
    committed after that, whichever server writes it, and however long its transaction takes.
    """

    async def newest(self) -> Position:
        """Return the position that includes everything committed so far."""

    async def read(self, after: Position, *, limit: int) -> ChangePage:
        """Return changes that a reader at this position has not seen: about `limit`, but whole transactions, and
        at least one if there are any. Raises `PositionLost`."""

    async def current(self, resource_ids: Collection[str]) -> Mapping[str, CurrentResource]:
        """Return those of the resources that exist. Their documents are in memory all at once."""

    async def expire(self, before: datetime, *, limit: int) -> int:
        """Delete changes older than `before`, at most about `limit`. Returns how many. The newest is kept."""

    def wakeups(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set after a commit with changes: of this process at once, of another within
        milliseconds. In rare cases it is not set, so a reader also reads without it now and then. The reader
        clears it before it reads."""

"""Where the fleet API keeps resources, reports and history.

Three stores ship: SQLite, PostgreSQL, and one in memory in `sentinel.testing`. They pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Requirement
from sentinel.ports.audit import AuditWriter
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import StoredResponses

T = TypeVar("T")


class StoredResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as a store keeps it: its encoded document, its reports, and what it is found by."""

    id: str
    """Unique over all kinds."""
    plural: str
    name: str
    """Unique within `plural` and `parent`."""
    parent: str = ""
    """The id of the resource that it belongs to; empty for none."""
    root: str
    """The id of its topmost ancestor, or its own: the family that is locked as one."""
    labels: Mapping[str, str]
    created_time: datetime
    updated_time: datetime
    version: int
    """Rises with every write, whatever was written; its ETag."""
    is_ready: bool
    waiting: Mapping[str, datetime]
    """The required adapters that keep it from being ready, each with the moment since when."""
    adapters: str
    """The required adapters that its conditions were aggregated for, joined by commas."""
    document: bytes
    statuses: bytes


class IdTaken(AlreadyExists):
    """Another resource, of whichever kind, has this id."""


class NameTaken(AlreadyExists):
    """Another resource of this kind and parent has this name."""


class FleetTransaction(AuditWriter, StoredResponses, Protocol):
    """What can be done to the fleet in one transaction; all of it takes effect, or nothing.

    Synchronous on purpose: a piece of work is a plain function from what it reads to what it writes, which a
    store may run on any thread, and run again from the start where it lost a race.
    """

    def lock(self, resource_id: str) -> StoredResource | None:
        """The resource, and nobody else changes its family until the transaction ends; None where there is none.

        What other transactions have committed before is seen.
        """

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        """Its direct children, oldest first, those of one moment by id; lock a member of the family before."""

    def count_children(self, resource_id: str) -> int: ...

    def insert(self, resource: StoredResource) -> None:
        """Raises `IdTaken` or `NameTaken`, and the transaction is then over: nothing of it remains, also where the
        work goes on. A child is inserted with its parent's family locked."""

    def update(self, resource: StoredResource) -> None:
        """Replaces everything but what never changes: `id`, `plural`, `name`, `parent`, `root`, `created_time`.
        Needs its family locked."""

    def remove(self, resource_id: str) -> None:
        """With its labels and discarded reports; its children must be gone, and its family locked. Its history and
        audit stay."""

    def keep_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        """Keeps a discarded report, and of this resource the `limit` newest."""

    def keep_generation(self, resource_id: str, record: GenerationRecord) -> None: ...


class OrderBy(StrEnum):
    """What lists may be ordered by; the id settles ties."""

    CREATED = "created_time"
    UPDATED = "updated_time"
    NAME = "name"
    ID = "id"


class ListPosition(msgspec.Struct, frozen=True, array_like=True):
    """A place in an ordered list: the values of the item that comes before it."""

    value: str | int
    """A name or id; a time in microseconds since 1970."""
    id: str


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which resources, in which order, and which stretch of them."""

    plural: str
    parent: str | None = None
    """The children of this one only; None for all."""
    requirements: tuple[Requirement, ...] = ()
    order_by: OrderBy = OrderBy.CREATED
    is_descending: bool = False
    """The ascending order backwards, ties included."""
    limit: int
    offset: int = 0
    """How many to pass over; its cost grows with it."""
    after: ListPosition | None = None
    """Begins behind this place instead, which needs no offset; its cost is flat."""
    wants_total: bool = True
    """Whether `total` is wanted."""
    may_join: bool = False
    """Whether documents may come joined, with commas between them, where that is cheaper than each by itself."""


class ListResult(msgspec.Struct, frozen=True):
    """A stretch of a list."""

    documents: Sequence[bytes]
    """In order; where the query says so, any that follow each other may be one."""
    count: int
    """Of how many resources these are."""
    total: int | None
    """All that the query selects, before limit and offset; None where it was not wanted."""
    last: ListPosition | None
    """The place behind the last document where more follow; None at the end."""


class Population(msgspec.Struct, frozen=True):
    """How many resources of a kind there are."""

    plural: str
    is_ready: bool
    count: int


class LongestWait(msgspec.Struct, frozen=True):
    """Since when the longest-waiting resource of a kind has waited for an adapter."""

    plural: str
    adapter: str
    since: datetime


class FleetStore(Protocol):
    """Where the fleet API keeps everything, in a database that is opened and closed elsewhere.

    What a call has written is durable when it returns, even if the process is killed right after. Readers see only
    what was committed. Every call may raise `Unavailable`; a write may then have taken effect or not.
    """

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        """Runs the work in a transaction, alone on each family it locks, and returns its result once that is
        durable. Where the work raises, nothing it did remains, and that is raised."""

    async def get(self, resource_id: str) -> StoredResource | None: ...

    async def find(self, query: ListQuery) -> ListResult: ...

    async def discarded(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        """Newest first, and how many there are."""

    async def history(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        """Newest first, and how many there are; also of a resource that is gone. One that is made anew under an
        old id goes on with the history of that id."""

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        """The ids of resources whose conditions were aggregated for other adapters than these."""

    async def populations(self) -> Sequence[Population]: ...

    async def longest_waits(self) -> Sequence[LongestWait]: ...

    async def expire_discarded(self, before: datetime, *, limit: int) -> int:
        """Deletes discarded reports that are older than this moment, at most `limit`; says how many."""

    async def expire_history(self, before: datetime, *, limit: int) -> int:
        """Deletes generations that are older than this moment, at most `limit`; says how many. The newest of a
        resource that is still there is kept, however old."""

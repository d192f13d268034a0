"""The store of the fleet API: resources, reports and history.

The implementations are SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Requirement
from sentinel.core.search import Expression
from sentinel.ports.audit import AuditWriter
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import StoredResponses

T = TypeVar("T")


class StoredResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource in the store: its encoded document, its reports, and the fields that queries use."""

    id: str
    """Unique over all kinds."""
    plural: str
    name: str
    """Unique within `plural` and `parent`."""
    parent: str = ""
    """The id of its parent; empty if it has none."""
    root: str
    """The id of its topmost ancestor, or its own. A root and its descendants form a family, locked as one."""
    labels: Mapping[str, str]
    created_time: datetime
    updated_time: datetime
    version: int
    """Increases with every write, by the rules of `core.fleet.versions`."""
    is_ready: bool
    waiting: Mapping[str, datetime]
    """The required adapters that it waits for to become ready, each with the time since when."""
    adapters: str
    """The required adapters that its conditions were aggregated for, separated by commas, and the other
    configuration of aggregation."""
    document: bytes
    statuses: bytes
    attributes: Mapping[str, str] = {}
    """What a search compares besides id, name and labels; see `core.search.attributes`."""


class IdTaken(AlreadyExists):
    """Another resource of any kind has this id."""


class NameTaken(AlreadyExists):
    """Another resource of this kind and parent has this name."""


class FleetTransaction(AuditWriter, StoredResponses, Protocol):
    """A transaction on the fleet: all of its writes take effect, or none.

    It is synchronous so that work is a plain function, which a store may run on any thread, and again from the
    start after a lost race.
    """

    def lock(self, resource_id: str) -> StoredResource | None:
        """Lock the resource's family until the transaction ends, and return the resource, or None if it does not
        exist.

        All changes that other transactions committed before are visible.
        """

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        """Return the direct children, ordered by creation time and id. The family must be locked."""

    def count_children(self, resource_id: str) -> int: ...

    def insert(self, resource: StoredResource) -> None:
        """Insert a resource. For a child, the parent's family must be locked.

        Raises `IdTaken` or `NameTaken`, which ends the transaction: nothing of it is written, even if the work
        suppresses the error.
        """

    def update(self, resource: StoredResource) -> None:
        """Replace a resource, except the immutable `id`, `plural`, `name`, `parent`, `root` and `created_time`.
        Its family must be locked."""

    def remove(self, resource_id: str) -> None:
        """Remove a resource with its labels and discarded reports, but not its history and audit. It must have no
        children, and its family must be locked."""

    def record_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        """Store a discarded report. Of each resource, only the `limit` newest are kept."""

    def record_generation(self, resource_id: str, record: GenerationRecord) -> None: ...


class OrderBy(StrEnum):
    """The order of a list. Ties are ordered by id."""

    CREATED = "created_time"
    UPDATED = "updated_time"
    NAME = "name"
    ID = "id"


class ListPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position in an ordered list, after the resource with these values."""

    value: str | int
    """A name, an id, or a time in microseconds since 1970."""
    id: str


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a filtered and ordered list."""

    plural: str
    parent: str | None = None
    """Select only the children of this resource; None for all."""
    requirements: tuple[Requirement, ...] = ()
    search: Expression | None = None
    """Select only what matches it; None for all."""
    order_by: OrderBy = OrderBy.CREATED
    is_descending: bool = False
    """The exact reverse of the ascending order, ties included."""
    limit: int
    offset: int = 0
    """How many to skip. The cost grows with it."""
    after: ListPosition | None = None
    """Start after this position instead of an offset. The cost is constant."""
    wants_total: bool = True
    """Whether to compute `total`."""
    max_bytes: int | None = None
    """How many bytes the documents of the page may have together; None for any number. The first always comes,
    however large it is. The store never reads many more than this."""
    may_join: bool = False
    """Whether the store may join documents with commas where that is cheaper."""


class ListResult(msgspec.Struct, frozen=True):
    """A page of a list."""

    documents: Sequence[bytes]
    """In order. With `may_join`, one item may hold several consecutive documents."""
    count: int
    """The number of resources in this page."""
    total: int | None
    """The number of resources that the query selects, without limit and offset; None if not wanted."""
    last: ListPosition | None
    """The position of the last resource if more follow; None at the end of the list."""


class Population(msgspec.Struct, frozen=True):
    """The number of resources of a kind."""

    plural: str
    is_ready: bool
    """Whether it counts the resources that are ready, or the others."""
    count: int


class LongestWait(msgspec.Struct, frozen=True):
    """The longest wait of any resource of a kind for an adapter."""

    plural: str
    adapter: str
    since: datetime
    """When that resource began to wait."""


class FleetStore(Protocol):
    """The store of the fleet API. Its database is opened and closed elsewhere.

    Writes are durable when a call returns, even if the process is killed right after. Readers see only committed
    writes. Every call may raise `Unavailable`; a write may then have taken effect or not.
    """

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        """Run the work in a transaction with exclusive access to each family it locks, and return its result once
        its writes are durable. If the work raises, nothing is written."""

    async def get(self, resource_id: str) -> StoredResource | None: ...

    async def find(self, query: ListQuery) -> ListResult: ...

    async def discarded(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        """Return a page of reports, newest first, and their total number."""

    async def history(
        self, resource_id: str, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        """Return a page of generations, newest first, and their total number.

        The history of a removed resource stays readable. A new resource with the same id continues it.
        """

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        """Return the ids of resources whose conditions were aggregated for other adapters than these."""

    async def populations(self) -> Sequence[Population]: ...

    async def longest_waits(self) -> Sequence[LongestWait]: ...

    async def expire_discarded(self, before: datetime, *, limit: int) -> int:
        """Delete discarded reports older than `before`, at most `limit`. Returns how many."""

    async def expire_history(self, before: datetime, *, limit: int) -> int:
        """Delete generations older than `before`, at most `limit`. Returns how many. The newest generation of an
        existing resource is kept."""

"""Builders for tests of fleet stores: resources, records, and transactions that write them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from sentinel.core.access import Role
from sentinel.core.fleet.documents import (
    ConditionStatus,
    DiscardedReport,
    DiscardReason,
    GenerationRecord,
    ReportedCondition,
    ResourceOperation,
)
from sentinel.core.labels import Operator, Requirement
from sentinel.ports.audit import AuditEntry, AuditLog, AuditWriter
from sentinel.ports.fleet_store import (
    FleetStore,
    FleetTransaction,
    ListQuery,
    ListResult,
    LongestWait,
    OrderBy,
    StoredResource,
)
from sentinel.ports.idempotency import KeyTaken, StoredResponse, StoredResponses
from tests.support.databases import backends
from tests.support.databases.backends import Backend

Transaction = TypeVar("Transaction", bound=StoredResponses)

MOMENT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
TIMEOUT = timedelta(seconds=60)
"""Only a deadlocked test waits this long."""
NEVER = datetime(1, 1, 2, tzinfo=UTC)
"""Older than every row."""
MAX_PAGES = 1_000


class Stores(ABC):
    """Provides the stores under test. Not bound to an event loop: each call uses the running one."""

    @abstractmethod
    async def empty(self) -> Backend:
        """Return an empty, open database. The caller closes it before it requests another."""

    @abstractmethod
    async def reopened(self, backend: Backend) -> Backend:
        """Close a database, and open one on the same data."""


class MemoryStores(Stores):
    """Stores in memory."""

    async def empty(self) -> Backend:
        backend = backends.memory()
        await backend.database.open()
        return backend

    async def reopened(self, backend: Backend) -> Backend:
        await backend.database.close()
        await backend.database.open()
        return backend


def node_pool(resource_id: str, parent: StoredResource, **fields: Any) -> StoredResource:
    """A child of a cluster; see `stored`."""
    return stored(resource_id, plural="nodepools", parent=parent, **fields)


def stored(
    resource_id: str,
    *,
    plural: str = "clusters",
    name: str = "",
    parent: StoredResource | None = None,
    labels: Mapping[str, str] | None = None,
    created: datetime = MOMENT,
    updated: datetime | None = None,
    is_ready: bool = False,
    waiting: Mapping[str, datetime] | None = None,
    adapters: str = "dns,validation",
    document: bytes | None = None,
    statuses: bytes = b"[]",
    attributes: Mapping[str, str] | None = None,
) -> StoredResource:
    return StoredResource(
        id=resource_id,
        plural=plural,
        name=name or f"name-of-{resource_id}",
        parent="" if parent is None else parent.id,
        root=resource_id if parent is None else parent.root,
        labels=labels or {},
        created_time=created,
        updated_time=created if updated is None else updated,
        version=1,
        is_ready=is_ready,
        waiting=waiting or {},
        adapters=adapters,
        document=msgspec.json.encode({"id": resource_id}) if document is None else document,
        statuses=statuses,
        attributes=attributes or {},
    )


def discarded(number: int, *, received: datetime | None = None, text: str = "") -> DiscardedReport:
    received = MOMENT + number * SECOND if received is None else received
    return DiscardedReport(
        adapter="dns",
        reason=DiscardReason.STALE_TIME,
        received_time=received,
        observed_generation=number,
        observed_time=received - SECOND,
        conditions=(ReportedCondition("Available", ConditionStatus.TRUE, "Done", text),),
        data=msgspec.Raw(b'{"zone":"z"}'),
    )


def generation(number: int, *, time: datetime | None = None, spec: bytes = b'{"replicas":3}') -> GenerationRecord:
    return GenerationRecord(
        generation=number,
        time=MOMENT + number * SECOND if time is None else time,
        actor="ops",
        change=ResourceOperation.CREATE if number == 1 else ResourceOperation.PATCH,
        labels={"region": "us-east"},
        spec=msgspec.Raw(spec),
    )


def entry(
    number: int,
    *,
    time: datetime | None = None,
    actor: str = "ops",
    action: str = "patch",
    resource_id: str = "cls-1",
) -> AuditEntry:
    return AuditEntry(
        id=f"0195-{number:08}",
        time=MOMENT + number * SECOND if time is None else time,
        actor=actor,
        role=Role.OPERATOR,
        address="127.0.0.1",
        action=action,
        kind="Cluster",
        resource_id=resource_id,
        request_id=f"request-{number}",
        detail="because",
    )


def response(key: str, *, actor: str = "ops", time: datetime = MOMENT, body: bytes = b"{}") -> StoredResponse:
    return StoredResponse(actor=actor, key=key, fingerprint="f1", time=time, version=1, body=body)


def labeled(key: str, operator: Operator, *values: str) -> Requirement:
    return Requirement(key, operator, tuple(sorted(values)))


def shown(value: Requirement | list[Requirement] | list[str]) -> str:
    """Return the id of a test parameter."""
    if isinstance(value, Requirement):
        return f"{value.key} {value.operator} {'|'.join(map(repr, value.values))}".strip()
    return ", ".join(each if isinstance(each, str) else shown(each) for each in value) or "nothing"


def microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def inserting(*resources: StoredResource) -> Callable[[FleetTransaction], None]:
    def work(fleet: FleetTransaction) -> None:
        for resource in resources:
            if resource.parent:
                fleet.lock(resource.parent)
            fleet.insert(resource)

    return work


def updating(resource: StoredResource) -> Callable[[FleetTransaction], None]:
    """Write it as the next version of the stored resource."""

    def work(fleet: FleetTransaction) -> None:
        before = fleet.lock(resource.id)
        assert before is not None
        fleet.update(msgspec.structs.replace(resource, version=before.version + 1))

    return work


def removing(*resource_ids: str) -> Callable[[FleetTransaction], None]:
    def work(fleet: FleetTransaction) -> None:
        for resource_id in resource_ids:
            fleet.lock(resource_id)
            fleet.remove(resource_id)

    return work


def recording_discarded(resource_id: str, *reports: DiscardedReport, limit: int = 100) -> Callable[..., None]:
    def work(fleet: FleetTransaction) -> None:
        fleet.lock(resource_id)
        for report in reports:
            fleet.record_discarded(resource_id, report, limit=limit)

    return work


def recording_generations(resource_id: str, *records: GenerationRecord) -> Callable[[FleetTransaction], None]:
    def work(fleet: FleetTransaction) -> None:
        fleet.lock(resource_id)
        for record in records:
            fleet.record_generation(resource_id, record)

    return work


def recording(*entries: AuditEntry) -> Callable[[AuditWriter], None]:
    def work(writer: AuditWriter) -> None:
        for each in entries:
            writer.record(each)

    return work


def incrementing(resource_id: str) -> Callable[[FleetTransaction], int]:
    """Increment a counter in the document, so that a lost update shows in the sum."""

    def work(fleet: FleetTransaction) -> int:
        before = fleet.lock(resource_id)
        assert before is not None
        number = int(before.document) + 1
        fleet.update(msgspec.structs.replace(before, version=before.version + 1, document=b"%d" % number))
        return number

    return work


def reporting(resource_id: str, number: int) -> Callable[[FleetTransaction], int]:
    """Increment the counter and record this audit entry: the writes of a report."""

    def work(fleet: FleetTransaction) -> int:
        counted = incrementing(resource_id)(fleet)
        fleet.record(entry(number, resource_id=resource_id))
        return counted

    return work


async def together(*works: Awaitable[object]) -> list[object]:
    """Run all concurrently. An exception is returned as the result."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        return list(await asyncio.gather(*works, return_exceptions=True))


async def request_concurrently(
    transact: Callable[[Callable[[Transaction], StoredResponse]], Awaitable[StoredResponse]],
    act: Callable[[Transaction, int], object],
) -> list[object]:
    """Send 20 requests with one key at once and return their responses.

    Each acts in its transaction, unless there is a response already.
    """

    def handling(number: int) -> Callable[[Transaction], StoredResponse]:
        def work(transaction: Transaction) -> StoredResponse:
            known = transaction.recall("ops", "key")
            if known is not None:
                return known
            made = response("key", body=b"%d" % number)
            act(transaction, number)
            transaction.remember(made)
            return made

        return work

    async def request(number: int) -> StoredResponse:
        try:
            return await transact(handling(number))
        except KeyTaken:
            return await transact(handling(number))

    return await together(*(request(number) for number in range(20)))


def ids(found: ListResult) -> list[str]:
    return [msgspec.json.decode(document, type=dict[str, str])["id"] for document in found.documents]


# A store may return any sequence. These return lists, which can be compared.


async def find(store: FleetStore, query: ListQuery) -> ListResult:
    found = await store.find(query)
    return ListResult(list(found.documents), found.count, found.total, found.last)


async def discarded_of(
    store: FleetStore, resource_id: str, *, limit: int = 9, offset: int = 0
) -> tuple[list[DiscardedReport], int]:
    reports, total = await store.discarded(resource_id, limit=limit, offset=offset)
    return list(reports), total


async def history_of(
    store: FleetStore, resource_id: str, *, limit: int = 9, offset: int = 0
) -> tuple[list[GenerationRecord], int]:
    records, total = await store.history(resource_id, limit=limit, offset=offset)
    return list(records), total


async def walk(store: FleetStore, query: ListQuery) -> list[str]:
    """Return all ids from the query's position to the end, following the cursor."""
    seen: list[str] = []
    for _ in range(MAX_PAGES):
        found = await store.find(query)
        assert len(found.documents) <= query.limit
        seen += ids(found)
        if found.last is None:
            return seen
        assert len(found.documents) == query.limit or query.max_bytes is not None
        query = msgspec.structs.replace(query, after=found.last)
    raise AssertionError(f"expected the list to end, got {MAX_PAGES} pages")


async def select(store: FleetStore, *requirements: Requirement, plural: str = "clusters") -> list[str]:
    """Return the selected ids, after checking that every order and page size agrees."""
    query = ListQuery(plural=plural, requirements=requirements, limit=100)
    found = await store.find(query)
    assert found.total == len(found.documents)
    for order in OrderBy:
        paged = msgspec.structs.replace(query, limit=2, order_by=order, is_descending=True)
        assert sorted(await walk(store, paged)) == sorted(ids(found))
    return sorted(ids(found))


async def populations(store: FleetStore) -> dict[tuple[str, bool], int]:
    """Return the populations that are not empty."""
    rows = await store.populations()
    assert len({(row.plural, row.is_ready) for row in rows}) == len(rows)
    return {(row.plural, row.is_ready): row.count for row in rows if row.count}


async def longest_waits(store: FleetStore) -> list[LongestWait]:
    return sorted(await store.longest_waits(), key=lambda wait: (wait.plural, wait.adapter))


async def expire(
    store: FleetStore,
    *,
    discarded: datetime = NEVER,
    history: datetime = NEVER,
    limit: int = 1_000,
) -> int:
    return await store.expire_discarded(discarded, limit=limit) + await store.expire_history(history, limit=limit)


def incrementing_version(resource_id: str) -> Callable[[FleetTransaction], int]:
    def work(fleet: FleetTransaction) -> int:
        before = fleet.lock(resource_id)
        assert before is not None
        fleet.update(msgspec.structs.replace(before, version=before.version + 1))
        return before.version + 1

    return work


class StoreSuite:
    """Fixtures of the store contract."""

    @pytest.fixture
    async def backend(self, stores: Stores) -> AsyncIterator[Backend]:
        backend = await stores.empty()
        yield backend
        await backend.database.close()

    @pytest.fixture
    def store(self, backend: Backend) -> FleetStore:
        return backend.fleet

    @pytest.fixture
    def audit(self, backend: Backend) -> AuditLog:
        return backend.audit

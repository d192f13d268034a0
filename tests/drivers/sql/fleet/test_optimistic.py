"""Optimistic writes: which work they can do, when they give up, and that none takes effect twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec
import pytest

from sentinel.drivers.sql.engine.statements import NeedsTransaction, Row, SqlValue, Statement
from sentinel.drivers.sql.fleet import rows
from sentinel.drivers.sql.fleet.optimistic import OptimisticTransaction
from sentinel.ports.audit import AuditQuery
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from tests.support.databases import postgresql
from tests.support.databases.backends import SqlFleet
from tests.support.fleet.store_records import (
    MOMENT,
    SECOND,
    entry,
    generation,
    incrementing,
    inserting,
    reporting,
    stored,
)

TIMEOUT = 60.0


class OneResourceSession:
    """A session on a database with at most one resource. `is_overtaken`: another server writes it in between."""

    can_write_two_tables = True
    has_snapshot = False
    joins_bytes = False
    can_stop_reading = False
    numbers_transactions = True

    def __init__(self, resource: StoredResource | None, *, is_overtaken: bool = False) -> None:
        self._found = [] if resource is None else [rows.all_columns(resource)]
        self._is_overtaken = is_overtaken
        self.locked: list[str] = []
        self.written: list[Mapping[str, SqlValue]] = []
        self.statements = 0

    def lock_key(self, key: str) -> None:
        self.locked.append(key)

    def rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        self.statements += 1
        return [[each[column.name] for column in rows.RESOURCE.selected_columns] for each in self._found]

    def rows_of_short_values(self, statement: Statement, max_length: int, **values: SqlValue) -> Sequence[Row]:
        raise AssertionError("an attempt reads one resource")

    def rows_within(self, statement: Statement, max_bytes: int, /, **values: SqlValue) -> Sequence[Row]:
        raise AssertionError("an attempt reads one resource")

    def run(self, statement: Statement, **values: SqlValue) -> int:
        self.statements += 1
        if self._is_overtaken:
            return 0
        self.written.append(values)
        return 1

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, SqlValue]]) -> None:
        raise AssertionError("an attempt writes once")


def replacing(**changed: object) -> Callable[[FleetTransaction], None]:
    def work(fleet: FleetTransaction) -> None:
        before = fleet.lock("cls-1")
        assert before is not None
        fleet.update(msgspec.structs.replace(before, **{"version": before.version + 1, **changed}))
        fleet.record(entry(1))

    return work


def keeping_a_generation(fleet: FleetTransaction) -> None:
    reporting("cls-1", 1)(fleet)
    fleet.record_generation("cls-1", generation(2))


def suppressing_the_error(fleet: FleetTransaction) -> None:
    reporting("cls-1", 1)(fleet)
    with pytest.raises(NeedsTransaction):
        fleet.count_children("cls-1")


def test_a_report_takes_two_statements_and_locks_its_key() -> None:
    session = OneResourceSession(stored("cls-1", document=b"6"))

    assert OptimisticTransaction(session).perform(reporting("cls-1", 1)) == 7

    assert session.statements == 2
    assert session.locked == ["cls-1"]
    assert [(each["document"], each["read_version"], each["audit_id"]) for each in session.written] == [
        (b"7", 1, "0195-00000001")
    ]


def test_work_that_writes_nothing_takes_one_statement() -> None:
    session = OneResourceSession(stored("cls-1"))

    assert OptimisticTransaction(session).perform(lambda fleet: fleet.lock("cls-1")) == stored("cls-1")

    assert session.statements == 1


@pytest.mark.parametrize(
    "work",
    [
        replacing(is_ready=True),
        replacing(labels={"region": "us-east"}),
        replacing(waiting={"dns": MOMENT}),
        replacing(updated_time=MOMENT + SECOND),
        replacing(adapters="dns"),
        replacing(attributes={"generation": "2"}),
        replacing(version=1),
        keeping_a_generation,
        suppressing_the_error,
        incrementing("cls-1"),
        lambda fleet: fleet.record(entry(1)),
        lambda fleet: fleet.insert(stored("cls-2")),
    ],
)
def test_work_beyond_one_row_needs_a_transaction(work: Callable[[FleetTransaction], object]) -> None:
    session = OneResourceSession(stored("cls-1", document=b"6"))

    with pytest.raises(NeedsTransaction):
        OptimisticTransaction(session).perform(work)

    assert not session.written


def test_a_report_on_a_child_needs_a_transaction() -> None:
    session = OneResourceSession(stored("np-1", parent=stored("cls-1"), document=b"6"))

    with pytest.raises(NeedsTransaction):
        OptimisticTransaction(session).perform(reporting("np-1", 1))

    assert not session.written


def test_a_report_that_was_overtaken_needs_a_transaction() -> None:
    session = OneResourceSession(stored("cls-1", document=b"6"), is_overtaken=True)

    with pytest.raises(NeedsTransaction):
        OptimisticTransaction(session).perform(reporting("cls-1", 1))


def test_a_second_read_needs_a_transaction_even_if_nothing_was_found() -> None:
    session = OneResourceSession(None)

    def work(fleet: FleetTransaction) -> None:
        assert fleet.lock("cls-1") is None
        fleet.lock("cls-1")

    with pytest.raises(NeedsTransaction):
        OptimisticTransaction(session).perform(work)

    assert session.locked == ["cls-1"]


@pytest.fixture
async def store(postgresql_database: str) -> AsyncIterator[SqlFleet]:
    async with SqlFleet.at(postgresql_database, connections=2) as store:
        await postgresql.empty(postgresql_database)
        await store.transact(inserting(stored("cls-1", document=b"0"), stored("cls-2", document=b"0")))
        yield store


@pytest.fixture
async def lock_holder(store: SqlFleet, postgresql_database: str) -> AsyncIterator[postgresql.Connection]:
    """Another client that holds the row lock of cls-1."""
    connection = await postgresql.connect(postgresql_database)
    await connection.execute("BEGIN; SELECT 1 FROM fleet_resources WHERE id = 'cls-1' FOR UPDATE")
    yield connection
    await connection.close()


async def test_concurrent_reports_of_several_servers_are_all_kept(
    store: SqlFleet, postgresql_database: str
) -> None:
    async with SqlFleet.at(postgresql_database) as second, SqlFleet.at(postgresql_database) as third:
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(
                *(
                    server.transact(reporting("cls-1", 20 * at + n))
                    for at, server in enumerate((store, second, third))
                    for n in range(20)
                )
            )

    after = await store.get("cls-1")
    assert after is not None
    assert (after.document, after.version) == (b"60", 61)
    assert len(await store.audit.find(AuditQuery(limit=100))) == 60


@pytest.mark.usefixtures("lock_holder")
async def test_a_report_whose_response_was_lost_is_not_repeated(store: SqlFleet, postgresql_database: str) -> None:
    runs = 0

    def work(fleet: FleetTransaction) -> None:
        nonlocal runs
        runs += 1
        reporting("cls-1", 1)(fleet)

    async with asyncio.timeout(TIMEOUT):
        writing = asyncio.create_task(store.transact(work))
        await postgresql.wait_for_blocked(postgresql_database, "pg_terminate_backend(pid)")
        with pytest.raises(Unavailable, match="no response to the write"):
            await writing

    assert runs == 1


async def test_reports_on_one_resource_leave_connections_for_others(
    store: SqlFleet, lock_holder: postgresql.Connection, postgresql_database: str
) -> None:
    async with asyncio.timeout(TIMEOUT):
        blocked = [asyncio.create_task(store.transact(reporting("cls-1", number))) for number in range(10)]
        await postgresql.wait_for_blocked(postgresql_database)
        other = await store.transact(reporting("cls-2", 10))
        is_any_done = any(each.done() for each in blocked)
        await lock_holder.execute("ROLLBACK")
        counted = await asyncio.gather(*blocked)

    assert (other, is_any_done) == (1, False)
    assert counted == list(range(1, 11))

"""Reports without a transaction: what they take, when they give up, and that they never take effect twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.statements import NeedsTransaction, Row, Statement, Value
from sentinel.drivers.sql.fleet.optimistic import attempt
from sentinel.drivers.sql.fleet.rows import STORED, changing, described, lasting
from sentinel.drivers.sql.history import HISTORY
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

AMPLE = 60.0


class OneResource:
    """A session on a database with one resource in it or none, which somebody else may write in between."""

    combines = True
    is_snapshot = False
    joins = False

    def __init__(self, resource: StoredResource | None, *, is_overtaken: bool = False) -> None:
        self._found = [] if resource is None else [lasting(resource) | changing(resource) | described(resource)]
        self._is_overtaken = is_overtaken
        self.locked: list[str] = []
        self.written: list[Mapping[str, Value]] = []
        self.statements = 0

    def lock_key(self, key: str) -> None:
        self.locked.append(key)

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        self.statements += 1
        return [[each[column.name] for column in STORED.selected_columns] for each in self._found]

    def run(self, statement: Statement, **values: Value) -> int:
        self.statements += 1
        if self._is_overtaken:
            return 0
        self.written.append(values)
        return 1

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
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
    fleet.keep_generation("cls-1", generation(2))


def swallowing(fleet: FleetTransaction) -> None:
    reporting("cls-1", 1)(fleet)
    with pytest.raises(NeedsTransaction):
        fleet.count_children("cls-1")


def test_a_report_takes_two_statements_and_its_lock() -> None:
    session = OneResource(stored("cls-1", document=b"6"))

    assert attempt(session, reporting("cls-1", 1)) == 7

    assert session.statements == 2
    assert session.locked == ["cls-1"]
    assert [(each["document"], each["read_version"], each["audit_id"]) for each in session.written] == [
        (b"7", 1, "0195-00000001")
    ]


def test_work_that_writes_nothing_takes_one_statement() -> None:
    session = OneResource(stored("cls-1"))

    assert attempt(session, lambda fleet: fleet.lock("cls-1")) == stored("cls-1")

    assert session.statements == 1


@pytest.mark.parametrize(
    "work",
    [
        replacing(is_ready=True),
        replacing(labels={"region": "us-east"}),
        replacing(waiting={"dns": MOMENT}),
        replacing(updated_time=MOMENT + SECOND),
        replacing(adapters="dns"),
        replacing(version=1),
        keeping_a_generation,
        swallowing,
        incrementing("cls-1"),
        lambda fleet: fleet.record(entry(1)),
        lambda fleet: fleet.insert(stored("cls-2")),
    ],
)
def test_what_changes_more_than_a_resource_needs_a_transaction(work: Callable[[FleetTransaction], object]) -> None:
    session = OneResource(stored("cls-1", document=b"6"))

    with pytest.raises(NeedsTransaction):
        attempt(session, work)

    assert not session.written


def test_a_report_on_a_child_needs_a_transaction() -> None:
    session = OneResource(stored("np-1", parent=stored("cls-1"), document=b"6"))

    with pytest.raises(NeedsTransaction):
        attempt(session, reporting("np-1", 1))

    assert not session.written


def test_a_report_that_was_overtaken_needs_a_transaction() -> None:
    session = OneResource(stored("cls-1", document=b"6"), is_overtaken=True)

    with pytest.raises(NeedsTransaction):
        attempt(session, reporting("cls-1", 1))


def test_a_second_look_needs_a_transaction_also_where_the_first_found_nothing() -> None:
    session = OneResource(None)

    def work(fleet: FleetTransaction) -> None:
        assert fleet.lock("cls-1") is None
        fleet.lock("cls-1")

    with pytest.raises(NeedsTransaction):
        attempt(session, work)

    assert session.locked == ["cls-1"]


async def test_reports_of_several_servers_at_once_are_all_kept(postgresql_database: str) -> None:
    servers = [SqlFleet(engine.database(postgresql_database, migrate=True, history=HISTORY)) for _ in range(3)]
    for server in servers:
        await server.open()
    await postgresql.empty(postgresql_database)
    await servers[0].transact(inserting(stored("cls-1", document=b"0")))

    async with asyncio.timeout(AMPLE):
        await asyncio.gather(
            *(
                server.transact(reporting("cls-1", 20 * at + n))
                for at, server in enumerate(servers)
                for n in range(20)
            )
        )

    after = await servers[0].get("cls-1")
    assert after is not None
    assert (after.document, after.version) == (b"60", 61)
    assert len(await servers[0].audit.find(AuditQuery(limit=100))) == 60
    for server in servers:
        await server.close()


async def test_a_report_whose_answer_was_lost_is_not_repeated(postgresql_database: str) -> None:
    store = SqlFleet(engine.database(postgresql_database, migrate=True, history=HISTORY))
    await store.open()
    await postgresql.empty(postgresql_database)
    await store.transact(inserting(stored("cls-1", document=b"0")))
    runs = 0

    def work(fleet: FleetTransaction) -> None:
        nonlocal runs
        runs += 1
        reporting("cls-1", 1)(fleet)

    holder = await postgresql.connect(postgresql_database)
    await holder.execute("BEGIN; SELECT 1 FROM fleet_resources WHERE id = 'cls-1' FOR UPDATE")
    async with asyncio.timeout(AMPLE):
        writing = asyncio.create_task(store.transact(work))
        await postgresql.once_it_waits(postgresql_database, "pg_terminate_backend(pid)")
        with pytest.raises(Unavailable, match="the write was not answered"):
            await writing

    assert runs == 1
    await holder.close()
    await store.close()


async def test_reports_on_one_resource_leave_connections_to_the_others(postgresql_database: str) -> None:
    store = SqlFleet(engine.database(postgresql_database, migrate=True, connections=2, history=HISTORY))
    await store.open()
    await postgresql.empty(postgresql_database)
    await store.transact(inserting(stored("cls-1", document=b"0"), stored("cls-2", document=b"0")))
    holder = await postgresql.connect(postgresql_database)
    await holder.execute("BEGIN; SELECT 1 FROM fleet_resources WHERE id = 'cls-1' FOR UPDATE")

    async with asyncio.timeout(AMPLE):
        hot = [asyncio.create_task(store.transact(reporting("cls-1", number))) for number in range(10)]
        await postgresql.once_it_waits(postgresql_database, "pid")
        other = await store.transact(reporting("cls-2", 10))
        is_answered = any(each.done() for each in hot)
        await holder.execute("ROLLBACK")
        counted = await asyncio.gather(*hot)

    assert (other, is_answered) == (1, False)
    assert counted == list(range(1, 11))
    await holder.close()
    await store.close()

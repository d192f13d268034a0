"""The fleet store in memory: injected faults, and checks for bugs of callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetTransaction, IdTaken, ListQuery, NameTaken, StoredResource
from sentinel.testing.database import Fault, Faults, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.loop import simulated
from tests.support.fleet.store_records import incrementing, inserting, removing, stored, updating


async def open_store(faults: Faults | None = None) -> MemoryFleetStore:
    database = MemoryDatabase(faults=faults)
    await database.open()
    return MemoryFleetStore(database)


class FaultScript:
    """Injects these faults into consecutive calls, then none."""

    def __init__(self, *faults: Fault | None) -> None:
        self._faults = list(faults)
        self.calls: list[str] = []

    def __call__(self, call: str) -> Fault | None:
        self.calls.append(call)
        return self._faults.pop(0) if self._faults else None


async def test_a_fault_before_the_commit_leaves_nothing() -> None:
    store = await open_store(FaultScript(Fault.BEFORE_COMMIT))

    with pytest.raises(Unavailable, match="before the commit"):
        await store.transact(inserting(stored("cls-1")))

    assert await store.get("cls-1") is None


async def test_a_fault_after_the_commit_loses_only_the_response() -> None:
    store = await open_store(FaultScript(Fault.AFTER_COMMIT))

    with pytest.raises(Unavailable, match="after the commit"):
        await store.transact(inserting(stored("cls-1")))

    assert await store.get("cls-1") == stored("cls-1")


async def test_work_that_lost_a_race_reruns_and_takes_effect_once() -> None:
    store = await open_store(FaultScript(None, Fault.LOST_RACE))
    await store.transact(inserting(stored("cls-1", document=b"0")))
    runs = 0

    def work(fleet: FleetTransaction) -> int:
        nonlocal runs
        runs += 1
        return incrementing("cls-1")(fleet)

    assert await store.transact(work) == 1
    assert runs == 2


async def test_faults_are_chosen_by_the_name_of_the_call() -> None:
    script = FaultScript(*[Fault.BEFORE_COMMIT] * 2)
    store = await open_store(script)

    with pytest.raises(Unavailable):
        await store.find(ListQuery(plural="clusters", limit=1))
    with pytest.raises(Unavailable):
        await store.populations()

    assert script.calls == ["find", "populations"]


async def test_a_database_that_is_not_open_is_unavailable() -> None:
    database = MemoryDatabase()

    with pytest.raises(Unavailable, match="not open"):
        await MemoryFleetStore(database).get("cls-1")

    assert database.unavailable_reason() == "the database is not open"


async def test_stores_on_one_database_share_their_data() -> None:
    database = MemoryDatabase()
    await database.open()

    await MemoryFleetStore(database).transact(inserting(stored("cls-1")))

    assert await MemoryFleetStore(database).get("cls-1") == stored("cls-1")


async def test_a_caller_that_reads_outside_the_transaction_loses_updates() -> None:
    store = await open_store()
    await store.transact(inserting(stored("cls-1", document=b"0")))

    async def increment_without_lock() -> None:
        before = await store.get("cls-1")
        assert before is not None
        document = b"%d" % (int(before.document) + 1)
        await store.transact(updating(msgspec.structs.replace(before, document=document)))

    await asyncio.gather(increment_without_lock(), increment_without_lock())

    after = await store.get("cls-1")
    assert after is not None
    assert (after.document, after.version) == (b"1", 3)


@simulated
async def test_it_works_on_virtual_time() -> None:
    store = await open_store()
    await store.transact(inserting(stored("cls-1", document=b"0")))

    await asyncio.gather(*(store.transact(incrementing("cls-1")) for _ in range(5)))

    after = await store.get("cls-1")
    assert after is not None
    assert after.document == b"5"


PARENT = stored("cls-1")
CHILD = stored("np-1", plural="nodepools", parent=PARENT)


@pytest.mark.parametrize(
    "unlocked_change",
    [
        lambda fleet: fleet.update(PARENT),
        lambda fleet: fleet.remove("np-1"),
        lambda fleet: fleet.children("cls-1"),
        lambda fleet: fleet.insert(stored("np-2", plural="nodepools", parent=PARENT)),
    ],
    ids=["update", "remove", "children", "insert"],
)
async def test_changing_a_family_without_locking_it_is_an_error(
    unlocked_change: Callable[[FleetTransaction], None],
) -> None:
    store = await open_store()
    await store.transact(inserting(PARENT, CHILD))

    with pytest.raises(RuntimeError, match="before it is locked"):
        await store.transact(unlocked_change)

    assert await store.get("np-1") == CHILD


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (removing("cls-1"), "is removed before its children"),
        (removing("absent"), "does not exist"),
        (lambda fleet: fleet.update(stored("absent")), "does not exist"),
        (
            inserting(stored("np-9", plural="nodepools", parent=stored("absent"))),
            "its parent absent does not exist",
        ),
    ],
    ids=["orphans", "removal", "update", "parent"],
)
async def test_violations_of_foreign_keys_are_errors(
    mistake: Callable[[FleetTransaction], None], error: str
) -> None:
    store = await open_store()
    await store.transact(inserting(PARENT, CHILD))

    with pytest.raises(RuntimeError, match=error):
        await store.transact(mistake)


async def test_a_transaction_cannot_be_used_after_its_end() -> None:
    store = await open_store()

    leaked = await store.transact(lambda fleet: fleet)

    with pytest.raises(RuntimeError, match="the transaction is over"):
        leaked.insert(stored("cls-1"))


async def test_a_taken_name_is_raised_even_if_the_work_suppresses_it() -> None:
    store = await open_store()
    await store.transact(inserting(PARENT))

    def work(fleet: FleetTransaction) -> None:
        with pytest.raises(NameTaken):
            fleet.insert(stored("cls-2", name=PARENT.name))

    with pytest.raises(NameTaken):
        await store.transact(work)


async def test_on_commit_gets_exactly_the_changes_that_take_effect() -> None:
    changes: list[tuple[StoredResource | None, StoredResource | None]] = []
    faults = FaultScript(None, Fault.BEFORE_COMMIT, Fault.LOST_RACE, None, Fault.AFTER_COMMIT)
    database = MemoryDatabase(faults=faults)
    await database.open()
    store = MemoryFleetStore(database, on_commit=lambda *change: changes.append(change))
    first = stored("cls-1", document=b"0")
    second = msgspec.structs.replace(first, document=b"1", version=first.version + 1)

    await store.transact(inserting(first))
    with pytest.raises(Unavailable):
        await store.transact(removing("cls-1"))
    await store.transact(updating(second))
    with pytest.raises(IdTaken):
        await store.transact(inserting(first))
    with pytest.raises(Unavailable):
        await store.transact(removing("cls-1"))

    assert changes == [(None, first), (first, second), (second, None)]

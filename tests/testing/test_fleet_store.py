"""The fleet store in memory: the contract, and what it adds for tests and simulations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetTransaction, IdTaken, ListQuery, NameTaken, StoredResource
from sentinel.testing import loop
from sentinel.testing.database import Fault, Faults, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from tests.contract.fleet_store import FleetStoreContract
from tests.support.fleet.store_records import MemoryStores, incrementing, inserting, removing, stored, updating


class TestMemoryFleetStore(FleetStoreContract):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()


async def opened(faults: Faults | None = None) -> MemoryFleetStore:
    database = MemoryDatabase(faults=faults)
    await database.open()
    return MemoryFleetStore(database)


class Script:
    """One fault for each call, in order; none when they are used up."""

    def __init__(self, *faults: Fault | None) -> None:
        self._faults = list(faults)
        self.calls: list[str] = []

    def __call__(self, call: str) -> Fault | None:
        self.calls.append(call)
        return self._faults.pop(0) if self._faults else None


async def test_a_fault_before_the_commit_leaves_nothing() -> None:
    store = await opened(Script(Fault.BEFORE_COMMIT))

    with pytest.raises(Unavailable, match="before the commit"):
        await store.transact(inserting(stored("cls-1")))

    assert await store.get("cls-1") is None


async def test_a_fault_after_the_commit_loses_only_the_answer() -> None:
    store = await opened(Script(Fault.AFTER_COMMIT))

    with pytest.raises(Unavailable, match="after the commit"):
        await store.transact(inserting(stored("cls-1")))

    assert await store.get("cls-1") == stored("cls-1")


async def test_work_that_lost_a_race_is_run_again_and_takes_effect_once() -> None:
    store = await opened(Script(None, Fault.LOST_RACE))
    await store.transact(inserting(stored("cls-1", document=b"0")))
    runs = 0

    def work(fleet: FleetTransaction) -> int:
        nonlocal runs
        runs += 1
        return incrementing("cls-1")(fleet)

    assert await store.transact(work) == 1
    assert runs == 2


async def test_every_call_can_fail_and_is_named() -> None:
    script = Script(*[Fault.BEFORE_COMMIT] * 2)
    store = await opened(script)

    with pytest.raises(Unavailable):
        await store.find(ListQuery(plural="clusters", limit=1))
    with pytest.raises(Unavailable):
        await store.populations()

    assert script.calls == ["find", "populations"]


async def test_a_database_that_is_not_open_says_so() -> None:
    database = MemoryDatabase()

    with pytest.raises(Unavailable, match="not open"):
        await MemoryFleetStore(database).get("cls-1")

    assert database.trouble() == "the database is not open"


async def test_stores_on_one_database_keep_the_same() -> None:
    database = MemoryDatabase()
    await database.open()

    await MemoryFleetStore(database).transact(inserting(stored("cls-1")))

    assert await MemoryFleetStore(database).get("cls-1") == stored("cls-1")


async def test_what_a_caller_has_read_may_be_old_by_the_time_it_acts() -> None:
    """A caller that reads outside of the transaction in which it writes loses updates, here as anywhere."""
    store = await opened()
    await store.transact(inserting(stored("cls-1", document=b"0")))

    async def increment_carelessly() -> None:
        before = await store.get("cls-1")
        assert before is not None
        document = b"%d" % (int(before.document) + 1)
        await store.transact(updating(msgspec.structs.replace(before, document=document)))

    await asyncio.gather(increment_carelessly(), increment_carelessly())

    after = await store.get("cls-1")
    assert after is not None
    assert (after.document, after.version) == (b"1", 3)


def test_it_works_on_virtual_time() -> None:
    async def scenario() -> bytes:
        store = await opened()
        await store.transact(inserting(stored("cls-1", document=b"0")))
        await asyncio.gather(*(store.transact(incrementing("cls-1")) for _ in range(5)))
        after = await store.get("cls-1")
        return b"" if after is None else after.document

    assert loop.run(scenario()) == b"5"


PARENT = stored("cls-1")
CHILD = stored("np-1", plural="nodepools", parent=PARENT)


@pytest.mark.parametrize(
    "careless",
    [
        lambda fleet: fleet.update(PARENT),
        lambda fleet: fleet.remove("np-1"),
        lambda fleet: fleet.children("cls-1"),
        lambda fleet: fleet.insert(stored("np-2", plural="nodepools", parent=PARENT)),
    ],
    ids=["update", "remove", "children", "insert"],
)
async def test_a_family_that_was_not_locked_cannot_be_changed(
    careless: Callable[[FleetTransaction], None],
) -> None:
    store = await opened()
    await store.transact(inserting(PARENT, CHILD))

    with pytest.raises(RuntimeError, match="before it is locked"):
        await store.transact(careless)

    assert await store.get("np-1") == CHILD


@pytest.mark.parametrize(
    ("mistaken", "complaint"),
    [
        (removing("cls-1"), "removed before its children"),
        (removing("nobody"), "is not there"),
        (lambda fleet: fleet.update(stored("nobody")), "is not there"),
        (inserting(stored("np-9", plural="nodepools", parent=stored("nobody"))), "its parent nobody is not there"),
    ],
    ids=["orphans", "removal", "update", "parent"],
)
async def test_what_a_database_would_refuse_is_refused(
    mistaken: Callable[[FleetTransaction], None], complaint: str
) -> None:
    store = await opened()
    await store.transact(inserting(PARENT, CHILD))

    with pytest.raises(RuntimeError, match=complaint):
        await store.transact(mistaken)


async def test_a_transaction_cannot_be_used_after_its_end() -> None:
    store = await opened()

    leaked = await store.transact(lambda fleet: fleet)

    with pytest.raises(RuntimeError, match="the transaction is over"):
        leaked.insert(stored("cls-1"))


async def test_a_name_that_was_taken_is_raised_even_if_the_work_keeps_it_to_itself() -> None:
    store = await opened()
    await store.transact(inserting(PARENT))

    def work(fleet: FleetTransaction) -> None:
        with pytest.raises(NameTaken):
            fleet.insert(stored("cls-2", name=PARENT.name))

    with pytest.raises(NameTaken):
        await store.transact(work)


async def test_a_watcher_hears_of_every_change_that_takes_effect_and_of_no_other() -> None:
    heard: list[tuple[StoredResource | None, StoredResource | None]] = []
    faults = Script(None, Fault.BEFORE_COMMIT, Fault.LOST_RACE, None, Fault.AFTER_COMMIT)
    database = MemoryDatabase(faults=faults)
    await database.open()
    store = MemoryFleetStore(database, on_commit=lambda *change: heard.append(change))
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

    assert heard == [(None, first), (first, second), (second, None)]

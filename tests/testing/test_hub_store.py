"""The store of the hub in memory: injected faults, and stores that share a database."""

from __future__ import annotations

import pytest

from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubTransaction
from sentinel.testing.database import Fault, MemoryDatabase
from sentinel.testing.hub_store import MemoryHubStore
from tests.support.hub.store_records import all_events, heartbeats, instance, opening_session, sample, saving


async def open_store(*faults: Fault | None) -> MemoryHubStore:
    """A store with these faults in consecutive calls, then none."""
    left = list(faults)
    database = MemoryDatabase(faults=lambda call: left.pop(0) if left else None)
    await database.open()
    return MemoryHubStore(database)


async def test_a_fault_before_the_commit_leaves_nothing() -> None:
    store = await open_store(Fault.BEFORE_COMMIT)

    async with store.wakeups() as woken:
        with pytest.raises(Unavailable, match="before the commit"):
            await store.transact(opening_session("edge-1"))

        assert not woken.is_set()
    assert await store.instance("edge-1") is None
    assert await all_events(store) == []


async def test_a_fault_after_the_commit_loses_only_the_response() -> None:
    store = await open_store(Fault.AFTER_COMMIT)

    async with store.wakeups() as woken:
        with pytest.raises(Unavailable, match="after the commit"):
            await store.transact(opening_session("edge-1"))

        assert woken.is_set()
    assert await store.instance("edge-1") is not None
    assert len(await all_events(store)) == 1


async def test_work_that_lost_a_race_reruns_and_takes_effect_once() -> None:
    store = await open_store(Fault.LOST_RACE)
    runs = 0

    def work(transaction: HubTransaction) -> int:
        nonlocal runs
        runs += 1
        return opening_session("edge-1")(transaction)

    assert await store.transact(work) == 1
    assert runs == 2
    assert len(await all_events(store)) == 1


async def test_a_flush_whose_response_is_lost_can_be_repeated() -> None:
    store = await open_store(None, Fault.AFTER_COMMIT)
    edge = instance("edge-1")
    await store.transact(saving(edge))
    beats = [heartbeats(edge, 5, samples=[sample(5)])]

    with pytest.raises(Unavailable):
        await store.flush(beats)
    once = await store.instance("edge-1")
    await store.flush(beats)

    assert await store.instance("edge-1") == once


async def test_stores_on_one_database_share_their_data() -> None:
    database = MemoryDatabase()
    await database.open()

    async with MemoryHubStore(database).wakeups() as woken:
        await MemoryHubStore(database).transact(opening_session("edge-1"))

        assert woken.is_set()
    assert await MemoryHubStore(database).instance("edge-1") is not None

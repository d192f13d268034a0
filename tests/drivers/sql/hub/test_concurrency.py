"""Transactions, flushes and readers of several hubs on one PostgreSQL, and registrations of all agents at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sentinel.ports.hub_store import HubEventType, HubStore, HubTransaction
from tests.support.databases import backends, postgresql
from tests.support.databases.backends import Backend
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.store_records import MOMENT, TIMEOUT, together
from tests.support.hub.store_records import (
    all_events,
    appending,
    heartbeats,
    instance,
    opening_session,
    sample,
    saving,
)

STORM = 1_000
"""Agents that reconnect at once. `bench` has 5,000."""


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def open_hub(url: str, opened: AsyncExitStack) -> Backend:
    backend = backends.sql(url)
    await backend.database.open()
    opened.push_async_callback(backend.database.close)
    return backend


async def subjects(hub: HubStore, after: int) -> tuple[list[str], int]:
    """Read on, and return the subjects and the number to go on with."""
    events = await all_events(hub, after)
    return [event.subject for event in events], events[-1].number if events else after


@pytest.mark.parametrize("kind", DatabaseKind)
async def test_no_agent_is_lost_when_all_register_at_once(
    kind: DatabaseKind, request: pytest.FixtureRequest, tmp_path: Path, opened: AsyncExitStack
) -> None:
    hub = (await open_hub(empty_database(kind, request, tmp_path), opened)).hub
    ids = [f"edge-{number}" for number in range(STORM)]

    first = await together(*(hub.transact(opening_session(each)) for each in ids))
    second = await together(*(hub.transact(opening_session(each)) for each in ids))

    assert first == [1] * STORM
    assert second == [2] * STORM
    assert await hub.newest_event() == 2 * STORM
    assert len(await all_events(hub)) == 2 * STORM


async def test_the_event_of_a_held_transaction_is_read_after_later_ones(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    url = fresh_postgresql_database
    one, other = await open_hub(url, opened), await open_hub(url, opened)
    await one.hub.transact(saving(instance("gate")))
    holder = await postgresql.connect(url)
    await holder.execute("BEGIN; SELECT 1 FROM hub_instances WHERE id = 'gate' FOR UPDATE")

    def held(transaction: HubTransaction) -> None:
        transaction.append_event(HubEventType.INSTANCE_STATE, "held", b"{}", MOMENT)
        transaction.instance("gate")

    async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
        tasks.create_task(one.hub.transact(held))
        await postgresql.wait_for_blocked(url)
        await other.hub.transact(appending("later"))
        during, position = await subjects(one.hub, 0)
        again, _ = await subjects(other.hub, position)
        await holder.close()
    after, position = await subjects(other.hub, position)
    end, _ = await subjects(one.hub, position)

    assert (during, again, after, end) == (["later"], [], ["held"], [])


async def test_on_sqlite_later_transactions_wait_for_the_held_one(tmp_path: Path, opened: AsyncExitStack) -> None:
    hub = (await open_hub(f"sqlite:///{tmp_path / 'hub.db'}", opened)).hub
    is_held, may_commit = threading.Event(), threading.Event()

    def held(transaction: HubTransaction) -> None:
        appending("held")(transaction)
        is_held.set()
        may_commit.wait(TIMEOUT.total_seconds())

    async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
        tasks.create_task(hub.transact(held))
        await asyncio.to_thread(is_held.wait)
        later = tasks.create_task(hub.transact(appending("later")))
        during, position = await subjects(hub, 0)
        assert not later.done()
        may_commit.set()

    assert during == []
    assert (await subjects(hub, position))[0] == ["held", "later"]


async def test_readers_of_two_hubs_see_the_same_numbers(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    hubs = [(await open_hub(fresh_postgresql_database, opened)).hub for _ in range(2)]
    count = 1_200  # More than are numbered at once.

    async def append(number: int) -> None:
        await hubs[number % 2].transact(appending(*(f"i-{number}-{index}" for index in range(60))))

    async def follow(hub: HubStore) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        while len(seen) < count:
            events = await hub.events(seen[-1][0] if seen else 0, limit=100)
            seen += [(event.number, event.subject) for event in events]
        return seen

    async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(follow(hub)) for hub in hubs]
        for number in range(count // 60):
            tasks.create_task(append(number))

    one, other = (reader.result() for reader in readers)
    assert one == other
    assert [number for number, _ in one] == list(range(1, count + 1))


async def test_many_new_events_are_numbered_in_their_order(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    hub = (await open_hub(fresh_postgresql_database, opened)).hub
    wanted = [f"i-{number}" for number in range(2_500)]

    await hub.transact(appending(*wanted))

    assert await subjects(hub, 0) == (wanted, 2_500)


async def test_a_commit_of_one_hub_wakes_readers_of_another(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    one, other = [await open_hub(fresh_postgresql_database, opened) for _ in range(2)]
    async with other.hub.wakeups() as woken, asyncio.timeout(TIMEOUT.total_seconds()):
        await woken.wait()  # It listens now.
        woken.clear()

        await one.hub.transact(appending("i-1"))

        await woken.wait()
        assert (await subjects(other.hub, 0))[0] == ["i-1"]


async def test_a_flush_locks_instances_in_the_order_of_their_ids(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    url = fresh_postgresql_database
    hub = (await open_hub(url, opened)).hub
    await hub.transact(saving(*map(instance, "abc")))
    holder = await postgresql.connect(url)
    await holder.execute("BEGIN; SELECT 1 FROM hub_instances WHERE id = 'b' FOR UPDATE")

    async with asyncio.timeout(TIMEOUT.total_seconds()):
        flushing = asyncio.create_task(hub.flush([heartbeats(instance(each), 5) for each in "cba"]))
        await postgresql.wait_for_blocked(url)
        unlocked = await postgresql.fetch(url, "SELECT id FROM hub_instances ORDER BY id FOR UPDATE SKIP LOCKED")
        await holder.close()
        await flushing

    assert unlocked == [("c",)]


async def test_a_flush_does_not_turn_back_what_it_waited_for(
    fresh_postgresql_database: str, opened: AsyncExitStack
) -> None:
    url = fresh_postgresql_database
    hub = (await open_hub(url, opened)).hub
    await hub.transact(saving(instance("a")))
    holder = await postgresql.connect(url)
    await holder.execute("BEGIN; UPDATE hub_instances SET session = 2, state = 'degraded' WHERE id = 'a'")

    async with asyncio.timeout(TIMEOUT.total_seconds()):
        flushing = asyncio.create_task(hub.flush([heartbeats(instance("a"), 5, samples=[sample(5)])]))
        await postgresql.wait_for_blocked(url)
        await holder.execute("COMMIT")
        await flushing
    await holder.close()

    found = await hub.instance("a")
    assert found is not None
    assert (found.life.session, found.life.last_seen, found.life.message) == (2, MOMENT, "")

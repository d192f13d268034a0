"""The part of the contract of `ports.hub_store.HubStore` that is about the log of events."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from sentinel.ports.hub_store import HubEvent, HubEventType, HubStore, HubTransaction
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, SECOND, TIMEOUT, Stores, together
from tests.support.hub.store_records import HubSuite, all_events, appending, opening_session


def subjects(events: list[HubEvent]) -> list[str]:
    return [event.subject for event in events]


class EventContract(HubSuite):
    """Every event is found by every reader, once."""

    async def test_events_are_read_as_they_were_appended(self, stores: Stores, backend: Backend) -> None:
        def work(transaction: HubTransaction) -> None:
            transaction.append_event(HubEventType.CONFIG_VERSION, "api@2", '{"a":"☃"}'.encode(), MOMENT)
            transaction.append_event(HubEventType.INSTANCE_CHANGED, "edge-1", b"", MOMENT + SECOND / 7)

        await backend.hub.transact(work)
        reopened = await stores.reopened(backend)
        first, second = await all_events(reopened.hub)

        assert (first.type, first.subject, first.data, first.time) == (
            HubEventType.CONFIG_VERSION,
            "api@2",
            '{"a":"☃"}'.encode(),
            MOMENT,
        )
        assert second == HubEvent(
            number=first.number + 1,
            time=MOMENT + SECOND / 7,
            type=HubEventType.INSTANCE_CHANGED,
            subject="edge-1",
        )
        await reopened.database.close()

    async def test_a_reader_goes_on_after_any_event(self, hub: HubStore) -> None:
        for number in range(5):
            await hub.transact(appending(f"i-{number}"))

        events = await all_events(hub)

        assert subjects(events) == [f"i-{number}" for number in range(5)]
        for index, event in enumerate(events):
            assert await all_events(hub, event.number) == events[index + 1 :]
        assert list(await hub.events(events[0].number, limit=2)) == events[1:3]
        assert await hub.newest_event() == events[-1].number

    async def test_an_empty_log_begins_with_the_next_number(self, hub: HubStore) -> None:
        newest, oldest = await hub.newest_event(), await hub.oldest_event()
        await hub.transact(appending("i-1"))

        [event] = await all_events(hub)
        assert (newest, oldest) == (0, event.number)
        assert await hub.oldest_event() == await hub.newest_event() == event.number

    async def test_a_transaction_without_events_takes_no_number(self, hub: HubStore) -> None:
        await hub.transact(appending("i-1"))
        newest = await hub.newest_event()

        await hub.transact(lambda transaction: transaction.instance("i-1"))

        assert await hub.newest_event() == newest

    async def test_concurrent_readers_miss_nothing(self, hub: HubStore) -> None:
        total = 60
        seen: list[list[HubEvent]] = [[], []]

        async def follow(events: list[HubEvent], limit: int) -> None:
            while len(events) < total:
                events += await hub.events(events[-1].number if events else 0, limit=limit)
                await asyncio.sleep(0)

        async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
            tasks.create_task(follow(seen[0], 1000))
            tasks.create_task(follow(seen[1], 3))
            await together(*(hub.transact(opening_session(f"i-{number % 20}")) for number in range(total)))

        events = await all_events(hub)
        assert seen == [events, events]
        assert all(before.number < after.number for before, after in pairwise(events))
        for instance_id in {event.subject for event in events}:
            assert [event.data for event in events if event.subject == instance_id] == [b"1", b"2", b"3"]

    async def test_events_expire_oldest_first(self, hub: HubStore) -> None:
        for number in range(6):
            await hub.transact(appending(f"i-{number}", time=MOMENT + number * HOUR))
        events = await all_events(hub)

        deleted = [await hub.expire_events(MOMENT + 4 * HOUR, limit=3) for _ in range(3)]

        assert deleted == [3, 1, 0]
        assert await all_events(hub) == events[4:]
        assert await hub.oldest_event() == events[4].number
        assert await hub.newest_event() == events[-1].number

    async def test_expired_events_leave_no_gap(self, hub: HubStore) -> None:
        for seconds in (1, 5, 2, 3):
            await hub.transact(appending(f"at-{seconds}", time=MOMENT + seconds * SECOND))

        deleted = await hub.expire_events(MOMENT + 4 * SECOND, limit=9)

        assert deleted == 1
        assert subjects(await all_events(hub)) == ["at-5", "at-2", "at-3"]

    async def test_numbers_go_on_after_all_events_have_expired(self, hub: HubStore) -> None:
        await hub.transact(appending("i-1", "i-2"))
        newest = await hub.newest_event()
        await hub.expire_events(MOMENT + HOUR, limit=9)

        kept, oldest = await hub.newest_event(), await hub.oldest_event()
        await hub.transact(appending("i-3"))

        [event] = await all_events(hub, newest)
        assert (kept, oldest) == (newest, event.number)
        assert event.number > newest

    async def test_a_commit_wakes_readers(self, hub: HubStore) -> None:
        async with hub.wakeups() as committed:
            committed.clear()
            await hub.transact(appending("i-1"))

            async with asyncio.timeout(TIMEOUT.total_seconds()):
                await committed.wait()

            assert subjects(await all_events(hub)) == ["i-1"]

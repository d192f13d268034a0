"""The contract of `ports.change_log.ChangeLog`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from sentinel.core.fleet.change_position import Position, PositionLost
from sentinel.ports.change_log import Change, ChangeLog, ChangePage, CurrentResource
from sentinel.ports.fleet_store import FleetStore, FleetTransaction
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import (
    NEVER,
    TIMEOUT,
    Stores,
    StoreSuite,
    incrementing,
    inserting,
    node_pool,
    removing,
    reporting,
    stored,
    together,
    updating,
)

LATER = datetime(2200, 1, 1, tzinfo=UTC)
"""Newer than every change."""


async def read_all(log: ChangeLog, after: Position, *, limit: int = 100) -> list[Change]:
    """Return all changes after a position, page by page."""
    changes: list[Change] = []
    page = ChangePage((), after, is_complete=False)
    while not page.is_complete:
        page = await log.read(page.position, limit=limit)
        changes += page.changes
    return changes


def ids(changes: list[Change]) -> list[str]:
    return [change.resource.resource_id for change in changes]


class ChangeLogContract(StoreSuite):
    """Every change is found by every reader, once."""

    @pytest.fixture
    def log(self, backend: Backend) -> ChangeLog:
        return backend.changes

    async def test_every_write_of_a_resource_is_a_change(self, store: FleetStore, log: ChangeLog) -> None:
        start = await log.newest()
        parent = stored("cls-1")
        child = node_pool("np-1", parent, labels={"a": "b"})

        await store.transact(inserting(parent, child))
        await store.transact(updating(msgspec.structs.replace(parent, document=b"{}")))
        await store.transact(updating(msgspec.structs.replace(child, labels={})))
        await store.transact(removing("np-1"))

        changes = await read_all(log, start, limit=1)
        assert [(*change.resource, change.may_leave) for change in changes] == [
            ("cls-1", "clusters", "", False),
            ("np-1", "nodepools", "cls-1", False),
            ("cls-1", "clusters", "", False),
            ("np-1", "nodepools", "cls-1", True),
            ("np-1", "nodepools", "cls-1", True),
        ]

    async def test_a_report_is_a_change(self, store: FleetStore, log: ChangeLog) -> None:
        await store.transact(inserting(stored("cls-1", document=b"0")))
        start = await log.newest()

        await store.transact(reporting("cls-1", 1))

        changes = await read_all(log, start)
        assert [(*change.resource, change.may_leave) for change in changes] == [("cls-1", "clusters", "", False)]

    async def test_what_readers_cannot_see_is_no_change(self, store: FleetStore, log: ChangeLog) -> None:
        resource = stored("cls-1")
        await store.transact(inserting(resource))
        start = await log.newest()

        await store.transact(updating(msgspec.structs.replace(resource, statuses=b'["work in progress"]')))
        await store.transact(lambda fleet: fleet.lock("cls-1"))

        assert await read_all(log, start) == []

    async def test_a_transaction_that_fails_leaves_no_change(self, store: FleetStore, log: ChangeLog) -> None:
        start = await log.newest()

        def work(fleet: FleetTransaction) -> None:
            inserting(stored("cls-1"))(fleet)
            raise RuntimeError("oh")

        with pytest.raises(RuntimeError, match="oh"):
            await store.transact(work)

        assert await read_all(log, start) == []

    async def test_several_changes_of_a_resource_are_read_as_the_last(
        self, store: FleetStore, log: ChangeLog
    ) -> None:
        start = await log.newest()
        resource = stored("cls-1", labels={"a": "b"})
        await store.transact(inserting(resource, stored("cls-2")))
        await store.transact(updating(msgspec.structs.replace(resource, labels={})))
        await store.transact(updating(msgspec.structs.replace(resource, labels={}, document=b"{}")))

        changes = await read_all(log, start)

        assert [(change.resource.resource_id, change.may_leave) for change in changes] == [
            ("cls-2", False),
            ("cls-1", True),
        ]

    async def test_an_id_that_moves_to_another_kind_is_two_changes(
        self, store: FleetStore, log: ChangeLog
    ) -> None:
        await store.transact(inserting(stored("one")))
        start = await log.newest()
        await store.transact(removing("one"))
        await store.transact(inserting(stored("one", plural="manifests")))

        changes = await read_all(log, start)

        assert [change.resource.plural for change in changes] == ["clusters", "manifests"]

    async def test_a_reader_can_stop_and_go_on_after_every_change(self, store: FleetStore, log: ChangeLog) -> None:
        start = await log.newest()
        for number in range(5):
            await store.transact(inserting(stored(f"cls-{number}")))

        changes = await read_all(log, start)

        assert ids(changes) == [f"cls-{number}" for number in range(5)]
        for index, change in enumerate(changes):
            assert ids(await read_all(log, change.position)) == ids(changes[index + 1 :])

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_a_page_has_whole_transactions(self, store: FleetStore, log: ChangeLog, limit: int) -> None:
        start = await log.newest()
        await store.transact(inserting(stored("cls-0")))
        await store.transact(inserting(*(stored(f"cls-{number}") for number in range(1, 5))))
        await store.transact(inserting(stored("cls-5")))

        changes = await read_all(log, start, limit=limit)

        assert sorted(ids(changes)) == [f"cls-{number}" for number in range(6)]
        assert ids(changes)[0] == "cls-0"
        assert ids(changes)[-1] == "cls-5"

    async def test_concurrent_writes_are_all_read(self, store: FleetStore, log: ChangeLog) -> None:
        resources = [stored(f"cls-{number}", document=b"0") for number in range(10)]
        await store.transact(inserting(*resources))
        position = await log.newest()
        seen: dict[str, bytes] = {}

        async def follow() -> None:
            nonlocal position
            while any(seen.get(resource.id) != b"6" for resource in resources):
                page = await log.read(position, limit=3)
                current = await log.current([change.resource.resource_id for change in page.changes])
                # Stops in the middle of a page and goes on from there.
                for change in page.changes[:2]:
                    seen[change.resource.resource_id] = current[change.resource.resource_id].document
                    position = change.position
                await asyncio.sleep(0)

        increments = [store.transact(incrementing(each.id)) for each in resources for _ in range(3)]
        reports = [
            store.transact(reporting(each.id, 3 * number + repeat))
            for number, each in enumerate(resources)
            for repeat in range(3)
        ]
        async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            await together(*increments, *reports)

        assert await read_all(log, await log.newest()) == []

    async def test_only_existing_resources_are_current(self, store: FleetStore, log: ChangeLog) -> None:
        many = [stored(f"cls-{number}", labels={"n": str(number)}) for number in range(40)]
        await store.transact(inserting(*many, node_pool("np-1", many[0])))

        current = await log.current([*(each.id for each in many), "np-1", "absent"])

        assert current == {
            **{each.id: CurrentResource("clusters", "", each.labels, each.document) for each in many},
            "np-1": CurrentResource("nodepools", "cls-0", {}, b'{"id":"np-1"}'),
        }
        assert await log.current([]) == {}

    async def test_a_position_ahead_of_the_newest_is_lost(self, store: FleetStore, log: ChangeLog) -> None:
        await store.transact(inserting(stored("cls-1")))
        newest = await log.newest()

        with pytest.raises(PositionLost):
            await log.read(msgspec.structs.replace(newest, next=newest.next + 1_000_000), limit=1)

    async def test_a_position_of_another_log_is_lost(self, log: ChangeLog) -> None:
        newest = await log.newest()

        with pytest.raises(PositionLost):
            await log.read(msgspec.structs.replace(newest, log="ffffffff"), limit=1)

    async def test_a_position_older_than_what_is_kept_is_lost(self, store: FleetStore, log: ChangeLog) -> None:
        start = await log.newest()
        for number in range(4):
            await store.transact(inserting(stored(f"cls-{number}")))
        changes = await read_all(log, start)

        nothing = await log.expire(NEVER, limit=100)
        some = await log.expire(LATER, limit=2)

        assert (nothing, some) == (0, 2)
        for position in (start, changes[0].position):
            with pytest.raises(PositionLost):
                await log.read(position, limit=1)
        assert ids(await read_all(log, changes[1].position)) == ["cls-2", "cls-3"]

    async def test_a_reader_at_the_newest_position_goes_on_after_any_time(
        self, store: FleetStore, log: ChangeLog
    ) -> None:
        start = await log.newest()
        for number in range(4):
            await store.transact(inserting(stored(f"cls-{number}")))
        newest = (await read_all(log, start))[-1].position

        while await log.expire(LATER, limit=2):
            pass
        await store.transact(inserting(stored("cls-4")))

        assert ids(await read_all(log, newest)) == ["cls-4"]

    async def test_another_server_reads_on_from_any_position(self, stores: Stores, backend: Backend) -> None:
        start = await backend.changes.newest()
        await backend.fleet.transact(inserting(stored("cls-1")))
        await backend.fleet.transact(inserting(stored("cls-2")))
        first = (await read_all(backend.changes, start))[0].position

        reopened = await stores.reopened(backend)

        assert ids(await read_all(reopened.changes, start)) == ["cls-1", "cls-2"]
        assert ids(await read_all(reopened.changes, first)) == ["cls-2"]
        await reopened.database.close()

    async def test_a_commit_wakes_readers(self, store: FleetStore, log: ChangeLog) -> None:
        resource = stored("cls-1")
        await store.transact(inserting(resource))
        async with log.wakeups() as committed:
            committed.clear()
            await store.transact(updating(msgspec.structs.replace(resource, document=b"{}")))

            async with asyncio.timeout(TIMEOUT.total_seconds()):
                await committed.wait()

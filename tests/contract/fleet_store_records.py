"""The contract of fleet stores for discarded reports, history, statistics and expiry."""

from __future__ import annotations

import msgspec

from sentinel.ports.audit import AuditLog, AuditQuery
from sentinel.ports.fleet_store import (
    FleetStore,
    LongestWait,
)
from tests.support.fleet.store_records import (
    HOUR,
    MOMENT,
    SECOND,
    StoreSuite,
    discarded,
    discarded_of,
    entry,
    expire,
    generation,
    history_of,
    inserting,
    longest_waits,
    populations,
    recording,
    recording_discarded,
    recording_generations,
    removing,
    stored,
    updating,
)


class RecordContract(StoreSuite):
    """Discarded reports, history and statistics."""

    async def test_discarded_reports_are_read_newest_first_in_pages(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        for number in range(5):
            await store.transact(recording_discarded("cls-1", discarded(number)))
        await store.transact(recording_discarded("cls-2", discarded(9)))

        first = await discarded_of(store, "cls-1", limit=2)
        second = await discarded_of(store, "cls-1", limit=2, offset=2)
        third = await discarded_of(store, "cls-1", limit=2, offset=4)
        beyond = await discarded_of(store, "cls-1", limit=2, offset=6)

        assert first == ([discarded(4), discarded(3)], 5)
        assert second == ([discarded(2), discarded(1)], 5)
        assert third == ([discarded(0)], 5)
        assert beyond == ([], 5)
        assert await discarded_of(store, "absent", limit=2) == ([], 0)

    async def test_only_the_newest_discarded_reports_are_kept(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        await store.transact(recording_discarded("cls-2", discarded(0), limit=3))

        for number in range(7):
            await store.transact(recording_discarded("cls-1", discarded(number), limit=3))

        assert await discarded_of(store, "cls-1") == ([discarded(n) for n in (6, 5, 4)], 3)
        assert await discarded_of(store, "cls-2") == ([discarded(0)], 1)

    async def test_a_lower_limit_applies_from_the_next_report(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(recording_discarded("cls-1", *map(discarded, range(6)), limit=6))

        await store.transact(recording_discarded("cls-1", discarded(6), limit=2))

        assert await discarded_of(store, "cls-1") == ([discarded(6), discarded(5)], 2)

    async def test_reports_received_at_the_same_time_keep_their_order(self, store: FleetStore) -> None:
        reports = [discarded(number, received=MOMENT) for number in range(4)]
        await store.transact(inserting(stored("cls-1")))

        await store.transact(recording_discarded("cls-1", *reports, limit=3))

        assert await discarded_of(store, "cls-1") == (reports[:0:-1], 3)

    async def test_history_is_read_newest_first_in_pages(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        for number in (1, 2, 3):
            await store.transact(recording_generations("cls-1", generation(number)))
        await store.transact(recording_generations("cls-2", generation(1)))

        first = await history_of(store, "cls-1", limit=2)
        second = await history_of(store, "cls-1", limit=2, offset=2)

        assert first == ([generation(3), generation(2)], 3)
        assert second == ([generation(1)], 3)
        assert await history_of(store, "absent", limit=2) == ([], 0)

    async def test_history_and_audit_outlive_the_resource(self, store: FleetStore, audit: AuditLog) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(recording_generations("cls-1", generation(1), generation(2)))
        await store.transact(recording(entry(1)))

        await store.transact(removing("cls-1"))

        assert await history_of(store, "cls-1") == ([generation(2), generation(1)], 2)
        assert list(await audit.find(AuditQuery(limit=9, resource_id="cls-1"))) == [entry(1)]

    async def test_a_new_resource_with_an_old_id_continues_its_history(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(recording_generations("cls-1", generation(1), generation(2)))
        await store.transact(removing("cls-1"))

        await store.transact(inserting(stored("cls-1")))
        newer = generation(1, time=MOMENT + HOUR)
        await store.transact(recording_generations("cls-1", newer))

        assert await history_of(store, "cls-1") == ([newer, generation(2), generation(1)], 3)

    async def test_outdated_resources_were_aggregated_for_other_adapters(self, store: FleetStore) -> None:
        await store.transact(
            inserting(
                *(stored(f"old-{n}", adapters="dns") for n in range(3)),
                stored("none", adapters=""),
                stored("new", adapters="dns,validation"),
                stored("man-1", plural="manifests", adapters="dns"),
            )
        )

        everything = await store.outdated("clusters", "dns,validation", limit=9)
        some = await store.outdated("clusters", "dns,validation", limit=2)
        without = await store.outdated("clusters", "", limit=9)

        assert sorted(everything) == ["none", "old-0", "old-1", "old-2"]
        assert len(set(some)) == 2
        assert set(some) < set(everything)
        assert sorted(without) == ["new", "old-0", "old-1", "old-2"]

    async def test_an_update_makes_an_outdated_resource_current(self, store: FleetStore) -> None:
        resource = stored("cls-1", adapters="dns")
        await store.transact(inserting(resource, stored("cls-2", adapters="dns")))

        await store.transact(updating(msgspec.structs.replace(resource, adapters="dns,validation")))

        assert list(await store.outdated("clusters", "dns,validation", limit=9)) == ["cls-2"]

    async def test_populations_follow_every_write(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", is_ready=n == 0) for n in range(3)]
        await store.transact(inserting(*resources, stored("man-1", plural="manifests")))
        initially = await populations(store)

        await store.transact(updating(msgspec.structs.replace(resources[1], is_ready=True)))
        await store.transact(updating(msgspec.structs.replace(resources[0], labels={"a": "b"})))
        await store.transact(removing("cls-2", "man-1"))

        assert initially == {("clusters", True): 1, ("clusters", False): 2, ("manifests", False): 1}
        assert await populations(store) == {("clusters", True): 2}

    async def test_longest_waits_are_per_kind_and_adapter(self, store: FleetStore) -> None:
        resources = [
            stored("cls-1", waiting={"dns": MOMENT + SECOND, "validation": MOMENT}),
            stored("cls-2", waiting={"dns": MOMENT}),
            stored("cls-3"),
            stored("man-1", plural="manifests", waiting={"dns": MOMENT + HOUR}),
        ]
        await store.transact(inserting(*resources))
        initially = await longest_waits(store)

        await store.transact(
            updating(msgspec.structs.replace(resources[1], waiting={"validation": MOMENT + HOUR}))
        )
        await store.transact(removing("man-1"))
        later = await longest_waits(store)
        await store.transact(updating(msgspec.structs.replace(resources[0], waiting={}, is_ready=True)))

        assert initially == [
            LongestWait("clusters", "dns", MOMENT),
            LongestWait("clusters", "validation", MOMENT),
            LongestWait("manifests", "dns", MOMENT + HOUR),
        ]
        assert later == [
            LongestWait("clusters", "dns", MOMENT + SECOND),
            LongestWait("clusters", "validation", MOMENT),
        ]
        assert await longest_waits(store) == [LongestWait("clusters", "validation", MOMENT + HOUR)]


class ExpiryContract(StoreSuite):
    """Only old records expire, at most `limit` per call."""

    async def test_an_empty_store_has_nothing_to_expire(self, store: FleetStore) -> None:
        now = MOMENT + HOUR

        assert await expire(store, discarded=now, history=now) == 0

    async def test_old_discarded_reports_expire(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        await store.transact(recording_discarded("cls-1", *map(discarded, range(1, 6))))
        await store.transact(recording_discarded("cls-2", *map(discarded, range(1, 3))))

        assert await expire(store, discarded=discarded(3).received_time) == 4
        assert await discarded_of(store, "cls-1") == ([discarded(n) for n in (5, 4, 3)], 3)
        assert await discarded_of(store, "cls-2") == ([], 0)

    async def test_old_generations_expire_except_the_newest_of_a_resource(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("existing"), stored("removed")))
        for resource_id in ("existing", "removed"):
            await store.transact(recording_generations(resource_id, *map(generation, (1, 2, 3))))
        await store.transact(removing("removed"))

        assert await expire(store, history=generation(3).time) == 4
        assert await history_of(store, "removed") == ([generation(3)], 1)
        assert await expire(store, history=MOMENT + HOUR) == 1

        assert await history_of(store, "existing") == ([generation(3)], 1)
        assert await history_of(store, "removed") == ([], 0)
        assert await expire(store, history=MOMENT + HOUR) == 0

    async def test_the_kept_generation_is_that_of_the_current_resource(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(recording_generations("cls-1", generation(1), generation(2)))
        await store.transact(removing("cls-1"))
        await store.transact(inserting(stored("cls-1")))
        newer = generation(1, time=MOMENT + 5 * SECOND)
        await store.transact(recording_generations("cls-1", newer))

        assert await expire(store, history=MOMENT + HOUR) == 2
        assert await history_of(store, "cls-1") == ([newer], 1)

    async def test_expiry_is_limited_per_call(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(recording_discarded("cls-1", *map(discarded, range(5))))
        await store.transact(recording_generations("cls-1", *map(generation, range(1, 7))))
        now = MOMENT + HOUR

        expired = [await expire(store, discarded=now, history=now, limit=2) for _ in range(4)]

        assert expired == [4, 4, 2, 0]

    async def test_generations_that_are_kept_do_not_use_up_the_limit(self, store: FleetStore) -> None:
        oldest = [stored(f"cls-{n}") for n in range(5)]
        await store.transact(inserting(*oldest, stored("youngest")))
        for resource in oldest:
            await store.transact(recording_generations(resource.id, generation(1)))
        await store.transact(recording_generations("youngest", generation(2), generation(3), generation(4)))

        assert await expire(store, history=MOMENT + HOUR, limit=1) == 1
        assert await expire(store, history=MOMENT + HOUR, limit=1) == 1
        assert await expire(store, history=MOMENT + HOUR, limit=1) == 0

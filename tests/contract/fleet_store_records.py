"""What every fleet store keeps beside resources, and for how long."""

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
    keeping_discarded,
    keeping_generations,
    longest_waits,
    populations,
    recording,
    removing,
    stored,
    updating,
)


class RecordContract(StoreSuite):
    """What is kept beside resources: discarded reports and history; and for how long."""

    async def test_discarded_reports_come_newest_first_and_in_pages(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        for number in range(5):
            await store.transact(keeping_discarded("cls-1", discarded(number)))
        await store.transact(keeping_discarded("cls-2", discarded(9)))

        first = await discarded_of(store, "cls-1", limit=2)
        second = await discarded_of(store, "cls-1", limit=2, offset=2)
        third = await discarded_of(store, "cls-1", limit=2, offset=4)
        beyond = await discarded_of(store, "cls-1", limit=2, offset=6)

        assert first == ([discarded(4), discarded(3)], 5)
        assert second == ([discarded(2), discarded(1)], 5)
        assert third == ([discarded(0)], 5)
        assert beyond == ([], 5)
        assert await discarded_of(store, "nobody", limit=2) == ([], 0)

    async def test_of_each_resource_the_newest_discarded_reports_are_kept(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        await store.transact(keeping_discarded("cls-2", discarded(0), limit=3))

        for number in range(7):
            await store.transact(keeping_discarded("cls-1", discarded(number), limit=3))

        assert await discarded_of(store, "cls-1") == ([discarded(n) for n in (6, 5, 4)], 3)
        assert await discarded_of(store, "cls-2") == ([discarded(0)], 1)

    async def test_a_lower_limit_holds_from_the_next_report_on(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(keeping_discarded("cls-1", *map(discarded, range(6)), limit=6))

        await store.transact(keeping_discarded("cls-1", discarded(6), limit=2))

        assert await discarded_of(store, "cls-1") == ([discarded(6), discarded(5)], 2)

    async def test_of_reports_received_in_one_moment_the_last_is_the_newest(self, store: FleetStore) -> None:
        reports = [discarded(number, received=MOMENT) for number in range(4)]
        await store.transact(inserting(stored("cls-1")))

        await store.transact(keeping_discarded("cls-1", *reports, limit=3))

        assert await discarded_of(store, "cls-1") == (reports[:0:-1], 3)

    async def test_history_comes_newest_first_and_in_pages(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        for number in (1, 2, 3):
            await store.transact(keeping_generations("cls-1", generation(number)))
        await store.transact(keeping_generations("cls-2", generation(1)))

        first = await history_of(store, "cls-1", limit=2)
        second = await history_of(store, "cls-1", limit=2, offset=2)

        assert first == ([generation(3), generation(2)], 3)
        assert second == ([generation(1)], 3)
        assert await history_of(store, "nobody", limit=2) == ([], 0)

    async def test_history_and_audit_outlive_the_resource(self, store: FleetStore, audit: AuditLog) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(keeping_generations("cls-1", generation(1), generation(2)))
        await store.transact(recording(entry(1)))

        await store.transact(removing("cls-1"))

        assert await history_of(store, "cls-1") == ([generation(2), generation(1)], 2)
        assert list(await audit.find(AuditQuery(limit=9, resource_id="cls-1"))) == [entry(1)]

    async def test_a_resource_made_anew_under_an_old_id_goes_on_in_its_history(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(keeping_generations("cls-1", generation(1), generation(2)))
        await store.transact(removing("cls-1"))

        await store.transact(inserting(stored("cls-1")))
        anew = generation(1, time=MOMENT + HOUR)
        await store.transact(keeping_generations("cls-1", anew))

        assert await history_of(store, "cls-1") == ([anew, generation(2), generation(1)], 3)

    async def test_outdated_are_those_aggregated_for_other_adapters(self, store: FleetStore) -> None:
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

    async def test_an_update_takes_a_resource_out_of_the_outdated(self, store: FleetStore) -> None:
        resource = stored("cls-1", adapters="dns")
        await store.transact(inserting(resource, stored("cls-2", adapters="dns")))

        await store.transact(updating(msgspec.structs.replace(resource, adapters="dns,validation")))

        assert list(await store.outdated("clusters", "dns,validation", limit=9)) == ["cls-2"]

    async def test_populations_follow_every_write(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", is_ready=n == 0) for n in range(3)]
        await store.transact(inserting(*resources, stored("man-1", plural="manifests")))
        at_first = await populations(store)

        await store.transact(updating(msgspec.structs.replace(resources[1], is_ready=True)))
        await store.transact(updating(msgspec.structs.replace(resources[0], labels={"a": "b"})))
        await store.transact(removing("cls-2", "man-1"))

        assert at_first == {("clusters", True): 1, ("clusters", False): 2, ("manifests", False): 1}
        assert await populations(store) == {("clusters", True): 2}

    async def test_the_longest_wait_of_each_kind_and_adapter_is_told(self, store: FleetStore) -> None:
        resources = [
            stored("cls-1", waiting={"dns": MOMENT + SECOND, "validation": MOMENT}),
            stored("cls-2", waiting={"dns": MOMENT}),
            stored("cls-3"),
            stored("man-1", plural="manifests", waiting={"dns": MOMENT + HOUR}),
        ]
        await store.transact(inserting(*resources))
        at_first = await longest_waits(store)

        await store.transact(
            updating(msgspec.structs.replace(resources[1], waiting={"validation": MOMENT + HOUR}))
        )
        await store.transact(removing("man-1"))
        later = await longest_waits(store)
        await store.transact(updating(msgspec.structs.replace(resources[0], waiting={}, is_ready=True)))

        assert at_first == [
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
    """What is old is forgotten, in portions, and nothing else is."""

    async def test_an_empty_store_has_nothing_to_forget(self, store: FleetStore) -> None:
        now = MOMENT + HOUR

        assert await expire(store, discarded=now, history=now) == 0

    async def test_old_discarded_reports_are_forgotten(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1"), stored("cls-2")))
        await store.transact(keeping_discarded("cls-1", *map(discarded, range(1, 6))))
        await store.transact(keeping_discarded("cls-2", *map(discarded, range(1, 3))))

        assert await expire(store, discarded=discarded(3).received_time) == 4
        assert await discarded_of(store, "cls-1") == ([discarded(n) for n in (5, 4, 3)], 3)
        assert await discarded_of(store, "cls-2") == ([], 0)

    async def test_old_generations_are_forgotten_but_the_newest_of_what_is_there(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("living"), stored("gone")))
        for resource_id in ("living", "gone"):
            await store.transact(keeping_generations(resource_id, *map(generation, (1, 2, 3))))
        await store.transact(removing("gone"))

        assert await expire(store, history=generation(3).time) == 4
        assert await history_of(store, "gone") == ([generation(3)], 1)
        assert await expire(store, history=MOMENT + HOUR) == 1

        assert await history_of(store, "living") == ([generation(3)], 1)
        assert await history_of(store, "gone") == ([], 0)
        assert await expire(store, history=MOMENT + HOUR) == 0

    async def test_the_newest_generation_is_that_of_the_living_not_of_a_predecessor(
        self, store: FleetStore
    ) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(keeping_generations("cls-1", generation(1), generation(2)))
        await store.transact(removing("cls-1"))
        await store.transact(inserting(stored("cls-1")))
        anew = generation(1, time=MOMENT + 5 * SECOND)
        await store.transact(keeping_generations("cls-1", anew))

        assert await expire(store, history=MOMENT + HOUR) == 2
        assert await history_of(store, "cls-1") == ([anew], 1)

    async def test_at_most_so_many_of_each_are_forgotten_at_once(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(keeping_discarded("cls-1", *map(discarded, range(5))))
        await store.transact(keeping_generations("cls-1", *map(generation, range(1, 7))))
        now = MOMENT + HOUR

        forgotten = [await expire(store, discarded=now, history=now, limit=2) for _ in range(4)]

        assert forgotten == [4, 4, 2, 0]

    async def test_what_may_not_be_forgotten_is_not_in_the_way(self, store: FleetStore) -> None:
        eldest = [stored(f"cls-{n}") for n in range(5)]
        await store.transact(inserting(*eldest, stored("youngest")))
        for resource in eldest:
            await store.transact(keeping_generations(resource.id, generation(1)))
        await store.transact(keeping_generations("youngest", generation(2), generation(3), generation(4)))

        assert await expire(store, history=MOMENT + HOUR, limit=1) == 1
        assert await expire(store, history=MOMENT + HOUR, limit=1) == 1
        assert await expire(store, history=MOMENT + HOUR, limit=1) == 0

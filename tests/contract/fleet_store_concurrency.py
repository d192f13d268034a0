"""What every fleet store promises to many who write at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from sentinel.ports.audit import AuditLog, AuditQuery
from sentinel.ports.fleet_store import FleetStore, FleetTransaction, IdTaken, ListQuery, NameTaken, StoredResource
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from tests.support.fleet.store_records import (
    AMPLE,
    StoreSuite,
    incrementing,
    inserting,
    populations,
    reporting,
    response,
    select,
    stored,
    together,
)


class ConcurrencyContract(StoreSuite):
    """However many write at once, the outcome is that of some order of them one after the other."""

    async def test_increments_of_one_resource_are_never_lost(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1", document=b"0")))

        counted = await together(*(store.transact(incrementing("cls-1")) for _ in range(50)))

        resource = await store.get("cls-1")
        assert resource is not None
        assert (resource.document, resource.version) == (b"50", 51)
        assert sorted(map(str, counted)) == sorted(map(str, range(1, 51)))

    async def test_of_reports_at_once_each_counts_and_leaves_its_entry(
        self, store: FleetStore, audit: AuditLog
    ) -> None:
        root = stored("cls-1", document=b"0")
        await store.transact(inserting(root, stored("np-1", plural="nodepools", parent=root, document=b"0")))

        def deleting(fleet: FleetTransaction) -> None:
            """Reads the child without locking it by name, and writes both."""
            incrementing("cls-1")(fleet)
            (child,) = fleet.children("cls-1")
            counted = b"%d" % (int(child.document) + 1)
            fleet.update(msgspec.structs.replace(child, version=child.version + 1, document=counted))

        results = await together(
            *(store.transact(reporting("cls-1", number)) for number in range(20)),
            *(store.transact(deleting) for _ in range(10)),
            *(store.transact(reporting("np-1", number)) for number in range(20, 40)),
        )

        assert not [result for result in results if isinstance(result, BaseException)]
        both = [await store.get("cls-1"), await store.get("np-1")]
        assert [(each.document, each.version) for each in both if each is not None] == [(b"30", 31)] * 2
        assert len(await audit.find(AuditQuery(limit=100))) == 40

    async def test_a_family_is_locked_as_one_whoever_is_locked_first(self, store: FleetStore) -> None:
        root = stored("root", document=b"0")
        children = [stored(f"child-{n}", plural="nodepools", parent=root, document=b"0") for n in range(3)]
        grandchild = stored("grandchild", plural="machines", parent=children[0], document=b"0")
        family = [root, *children, grandchild]
        await store.transact(inserting(*family))

        def downwards(fleet: FleetTransaction) -> None:
            for member in family:
                incrementing(member.id)(fleet)

        def upwards(fleet: FleetTransaction) -> None:
            for member in reversed(family):
                incrementing(member.id)(fleet)

        def by_children(fleet: FleetTransaction) -> None:
            fleet.lock("grandchild")
            for child in fleet.children("root"):
                fleet.update(
                    msgspec.structs.replace(
                        child, version=child.version + 1, document=b"%d" % (int(child.document) + 1)
                    )
                )

        works = [downwards, upwards, by_children] * 10
        results = await together(*(store.transact(work) for work in works))

        assert results == [None] * 30
        counted = {member.id: await store.get(member.id) for member in family}
        assert {key: None if each is None else each.document for key, each in counted.items()} == {
            "root": b"20",
            "child-0": b"30",
            "child-1": b"30",
            "child-2": b"30",
            "grandchild": b"20",
        }

    async def test_families_do_not_disturb_each_other(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", document=b"0") for n in range(20)]
        await store.transact(inserting(*resources))

        await together(*(store.transact(incrementing(resource.id)) for _ in range(5) for resource in resources))

        found = await store.find(ListQuery(plural="clusters", limit=100))
        assert list(found.documents) == [b"5"] * 20

    async def test_of_many_who_want_a_name_one_gets_it(self, store: FleetStore) -> None:
        rivals = [stored(f"cls-{n}", name="wanted") for n in range(20)]

        results = await together(*(store.transact(inserting(rival)) for rival in rivals))

        assert results.count(None) == 1
        assert sum(isinstance(result, NameTaken) for result in results) == 19
        assert await populations(store) == {("clusters", False): 1}

    async def test_of_many_who_want_an_id_one_gets_it(self, store: FleetStore) -> None:
        rivals = [stored("wanted", name=f"name-{n}") for n in range(20)]

        results = await together(*(store.transact(inserting(rival)) for rival in rivals))

        assert results.count(None) == 1
        assert sum(isinstance(result, IdTaken) for result in results) == 19

    async def test_of_many_who_use_a_key_one_acts_and_the_others_recall_it(self, store: FleetStore) -> None:
        def creating(number: int) -> Callable[[FleetTransaction], StoredResponse]:
            def work(fleet: FleetTransaction) -> StoredResponse:
                known = fleet.recall("ops", "key")
                if known is not None:
                    return known
                fleet.insert(stored(f"cls-{number}"))
                made = response("key", body=b"%d" % number)
                fleet.remember(made)
                return made

            return work

        async def create(number: int) -> StoredResponse:
            try:
                return await store.transact(creating(number))
            except KeyTaken:
                return await store.transact(creating(number))

        results = await together(*(create(number) for number in range(20)))

        assert results == [results[0]] * 20
        assert await populations(store) == {("clusters", False): 1}

    async def test_no_child_is_left_without_its_parent(self, store: FleetStore) -> None:
        parents = [stored(f"cls-{n}") for n in range(10)]
        await store.transact(inserting(*parents))

        def adopting(parent: StoredResource) -> Callable[[FleetTransaction], bool]:
            def work(fleet: FleetTransaction) -> bool:
                if fleet.lock(parent.id) is None:
                    return False
                fleet.insert(stored(f"child-of-{parent.id}", plural="nodepools", parent=parent))
                return True

            return work

        def ending(parent: StoredResource) -> Callable[[FleetTransaction], bool]:
            def work(fleet: FleetTransaction) -> bool:
                if fleet.lock(parent.id) is None or fleet.count_children(parent.id):
                    return False
                fleet.remove(parent.id)
                return True

            return work

        works = [
            make(parent)
            for number, parent in enumerate(parents)
            for make in ((adopting, ending) if number % 2 else (ending, adopting))
        ]
        results = await together(*map(store.transact, works))

        assert sorted(map(str, results)) == ["False"] * 10 + ["True"] * 10
        for parent in parents:
            child = await store.get(f"child-of-{parent.id}")
            assert (await store.get(parent.id) is None) == (child is None)

    async def test_readers_see_only_what_was_committed(self, store: FleetStore) -> None:
        twins = [stored("cls-1", document=b"0"), stored("cls-2", document=b"0")]
        await store.transact(inserting(*twins))

        def work(fleet: FleetTransaction) -> None:
            for twin in twins:
                incrementing(twin.id)(fleet)

        async def read() -> bool:
            found = await store.find(ListQuery(plural="clusters", limit=2))
            return found.documents[0] == found.documents[1]

        results = await together(*(each for _ in range(20) for each in (store.transact(work), read(), read())))

        assert results == [None, True, True] * 20

    async def test_a_caller_that_is_cancelled_leaves_the_store_usable(self, store: FleetStore) -> None:
        twins = [stored("cls-1", document=b"0"), stored("cls-2", document=b"0")]
        await store.transact(inserting(*twins))

        def work(fleet: FleetTransaction) -> None:
            for twin in twins:
                incrementing(twin.id)(fleet)

        async with asyncio.timeout(AMPLE.total_seconds()):
            for turns in range(25):
                abandoned = [asyncio.create_task(store.transact(work)) for _ in range(2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in abandoned:
                    task.cancel()
                await asyncio.gather(*abandoned, return_exceptions=True)
                # Whether the abandoned ones took effect is open; that they did so whole, and let go, is not.
                before = await store.transact(lambda fleet: [fleet.lock(twin.id) for twin in twins])
                await store.transact(work)
                after = await store.transact(lambda fleet: [fleet.lock(twin.id) for twin in twins])

                assert len({twin.document for twin in before if twin is not None}) == 1
                assert len({twin.document for twin in after if twin is not None}) == 1

    async def test_a_reader_that_is_cancelled_leaves_the_store_usable(self, store: FleetStore) -> None:
        await store.transact(inserting(*(stored(f"cls-{n}") for n in range(10))))

        async with asyncio.timeout(AMPLE.total_seconds()):
            for turns in range(25):
                abandoned = [asyncio.create_task(select(store)) for _ in range(5)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in abandoned:
                    task.cancel()
                await asyncio.gather(*abandoned, return_exceptions=True)

            assert len(await select(store)) == 10

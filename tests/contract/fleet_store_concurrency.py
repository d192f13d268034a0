"""The contract of fleet stores for concurrent writers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from sentinel.ports.audit import AuditLog, AuditQuery
from sentinel.ports.fleet_store import FleetStore, FleetTransaction, IdTaken, ListQuery, NameTaken, StoredResource
from tests.support.fleet.store_records import (
    TIMEOUT,
    StoreSuite,
    incrementing,
    inserting,
    node_pool,
    populations,
    reporting,
    request_concurrently,
    select,
    stored,
    together,
)

TWINS = (stored("cls-1", document=b"0"), stored("cls-2", document=b"0"))


def increment_twins(fleet: FleetTransaction) -> None:
    for twin in TWINS:
        incrementing(twin.id)(fleet)


async def cancel_after(yields: int, *calls: Coroutine[Any, Any, object]) -> None:
    """Start the calls, let other tasks run some times, and cancel them."""
    tasks = [asyncio.create_task(call) for call in calls]
    for _ in range(yields):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class ConcurrencyContract(StoreSuite):
    """Concurrent transactions have the outcome of some serial order."""

    async def test_concurrent_increments_are_never_lost(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1", document=b"0")))

        counted = await together(*(store.transact(incrementing("cls-1")) for _ in range(50)))

        resource = await store.get("cls-1")
        assert resource is not None
        assert (resource.document, resource.version) == (b"50", 51)
        assert sorted(map(str, counted)) == sorted(map(str, range(1, 51)))

    async def test_concurrent_reports_are_all_applied_and_recorded(
        self, store: FleetStore, audit: AuditLog
    ) -> None:
        root = stored("cls-1", document=b"0")
        await store.transact(inserting(root, node_pool("np-1", root, document=b"0")))

        def deleting(fleet: FleetTransaction) -> None:
            """Read the child without locking it by id, and write both."""
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

    async def test_a_family_is_locked_as_one_whichever_member_comes_first(self, store: FleetStore) -> None:
        root = stored("root", document=b"0")
        children = [node_pool(f"child-{n}", root, document=b"0") for n in range(3)]
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

    async def test_families_are_locked_independently(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", document=b"0") for n in range(20)]
        await store.transact(inserting(*resources))

        await together(*(store.transact(incrementing(resource.id)) for _ in range(5) for resource in resources))

        found = await store.find(ListQuery(plural="clusters", limit=100))
        assert list(found.documents) == [b"5"] * 20

    async def test_one_of_many_concurrent_inserts_gets_a_name(self, store: FleetStore) -> None:
        candidates = [stored(f"cls-{n}", name="wanted") for n in range(20)]

        results = await together(*(store.transact(inserting(candidate)) for candidate in candidates))

        assert results.count(None) == 1
        assert sum(isinstance(result, NameTaken) for result in results) == 19
        assert await populations(store) == {("clusters", False): 1}

    async def test_one_of_many_concurrent_inserts_gets_an_id(self, store: FleetStore) -> None:
        candidates = [stored("wanted", name=f"name-{n}") for n in range(20)]

        results = await together(*(store.transact(inserting(candidate)) for candidate in candidates))

        assert results.count(None) == 1
        assert sum(isinstance(result, IdTaken) for result in results) == 19

    async def test_one_of_many_requests_with_a_key_inserts_and_others_recall_it(self, store: FleetStore) -> None:
        results = await request_concurrently(
            store.transact, lambda fleet, number: fleet.insert(stored(f"cls-{number}"))
        )

        assert results == [results[0]] * 20
        assert await populations(store) == {("clusters", False): 1}

    async def test_a_parent_is_not_removed_while_a_child_is_inserted(self, store: FleetStore) -> None:
        parents = [stored(f"cls-{n}") for n in range(10)]
        await store.transact(inserting(*parents))

        def adding_child(parent: StoredResource) -> Callable[[FleetTransaction], bool]:
            def work(fleet: FleetTransaction) -> bool:
                if fleet.lock(parent.id) is None:
                    return False
                fleet.insert(node_pool(f"child-of-{parent.id}", parent))
                return True

            return work

        def removing_parent(parent: StoredResource) -> Callable[[FleetTransaction], bool]:
            def work(fleet: FleetTransaction) -> bool:
                if fleet.lock(parent.id) is None or fleet.count_children(parent.id):
                    return False
                fleet.remove(parent.id)
                return True

            return work

        works = [
            make(parent)
            for number, parent in enumerate(parents)
            for make in ((adding_child, removing_parent) if number % 2 else (removing_parent, adding_child))
        ]
        results = await together(*map(store.transact, works))

        assert sorted(map(str, results)) == ["False"] * 10 + ["True"] * 10
        for parent in parents:
            child = await store.get(f"child-of-{parent.id}")
            assert (await store.get(parent.id) is None) == (child is None)

    async def test_readers_see_only_committed_writes(self, store: FleetStore) -> None:
        await store.transact(inserting(*TWINS))

        async def read() -> bool:
            found = await store.find(ListQuery(plural="clusters", limit=2))
            return found.documents[0] == found.documents[1]

        results = await together(
            *(each for _ in range(20) for each in (store.transact(increment_twins), read(), read()))
        )

        assert results == [None, True, True] * 20

    async def test_a_cancelled_writer_leaves_the_store_usable(self, store: FleetStore) -> None:
        await store.transact(inserting(*TWINS))

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            for yields in range(25):
                await cancel_after(yields, *(store.transact(increment_twins) for _ in range(2)))
                # The cancelled ones may have taken effect, but only as a whole, and they hold no lock.
                before = await store.transact(lambda fleet: [fleet.lock(twin.id) for twin in TWINS])
                await store.transact(increment_twins)
                after = await store.transact(lambda fleet: [fleet.lock(twin.id) for twin in TWINS])

                assert len({twin.document for twin in before if twin is not None}) == 1
                assert len({twin.document for twin in after if twin is not None}) == 1

    async def test_a_cancelled_reader_leaves_the_store_usable(self, store: FleetStore) -> None:
        await store.transact(inserting(*(stored(f"cls-{n}") for n in range(10))))

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            for yields in range(25):
                await cancel_after(yields, *(select(store) for _ in range(5)))

            assert len(await select(store)) == 10

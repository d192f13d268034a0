"""The contract of fleet stores for transactions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest

from sentinel.core.labels import Operator
from sentinel.ports.audit import AuditLog, AuditQuery
from sentinel.ports.database import AlreadyExists
from sentinel.ports.fleet_store import (
    FleetStore,
    FleetTransaction,
    IdTaken,
    ListQuery,
    LongestWait,
    NameTaken,
    StoredResource,
)
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import (
    HOUR,
    MOMENT,
    SECOND,
    Stores,
    StoreSuite,
    discarded,
    discarded_of,
    entry,
    find,
    generation,
    history_of,
    incrementing,
    incrementing_version,
    inserting,
    labeled,
    longest_waits,
    node_pool,
    populations,
    recording,
    recording_discarded,
    recording_generations,
    removing,
    response,
    select,
    stored,
)


class TransactionContract(StoreSuite):
    """A transaction takes effect completely or not at all, and its data is read back unchanged."""

    async def test_an_inserted_resource_is_read_back_unchanged(self, store: FleetStore) -> None:
        parent = stored("cls-1")
        child = stored(
            "np-1",
            plural="nodepools",
            name="grün-粒-🙂-Ω",
            parent=parent,
            labels={"region": "us-east", "example.com/tier": "", "zone": "a"},
            created=MOMENT,
            updated=MOMENT + HOUR,
            is_ready=True,
            waiting={"dns": MOMENT, "validation": MOMENT + SECOND},
            document='{"id":"np-1","spec":{"grüße":"\\u0000 🙂"}}'.encode(),
            statuses=b'[{"adapter":"dns"}]',
        )

        await store.transact(inserting(parent, child))

        assert await store.get("np-1") == child
        assert await store.get("cls-1") == parent

    async def test_an_unknown_id_is_none(self, store: FleetStore) -> None:
        assert await store.get("absent") is None
        assert await store.transact(lambda fleet: fleet.lock("absent")) is None

    async def test_the_result_of_the_work_is_returned(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))

        assert await store.transact(lambda fleet: fleet.lock("cls-1")) == await store.get("cls-1")

    @pytest.mark.parametrize(
        "time",
        [
            datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
            datetime(2255, 6, 5, 23, 47, 34, 740_993, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
        ids=str,
    )
    async def test_times_are_stored_to_the_microsecond(self, store: FleetStore, time: datetime) -> None:
        resource = stored("cls-1", created=time, waiting={"dns": time})

        await store.transact(inserting(resource))

        assert await store.get("cls-1") == resource
        assert await longest_waits(store) == [LongestWait("clusters", "dns", time)]

    async def test_a_megabyte_is_stored_unchanged(self, store: FleetStore) -> None:
        text = "ü" * 500_000
        resource = stored(
            "cls-1",
            document=msgspec.json.encode({"id": "cls-1", "spec": text}),
            statuses=msgspec.json.encode([text]),
        )
        record = generation(1, spec=msgspec.json.encode(text))
        report = discarded(1, text=text)

        def work(fleet: FleetTransaction) -> None:
            fleet.insert(resource)
            fleet.record_generation("cls-1", record)
            fleet.record_discarded("cls-1", report, limit=1)
            fleet.remember(response("key", body=resource.document))

        await store.transact(work)

        assert await store.get("cls-1") == resource
        assert (await find(store, ListQuery(plural="clusters", limit=1))).documents == [resource.document]
        assert await history_of(store, "cls-1", limit=1) == ([record], 1)
        assert await discarded_of(store, "cls-1", limit=1) == ([report], 1)
        remembered = await store.transact(lambda fleet: fleet.recall("ops", "key"))
        assert remembered is not None
        assert remembered.body == resource.document

    async def test_an_update_replaces_all_mutable_fields(self, store: FleetStore) -> None:
        before = stored("cls-1", labels={"region": "us-east", "tier": "gold"}, waiting={"dns": MOMENT})
        other = stored("cls-2", labels={"region": "us-east"}, waiting={"dns": MOMENT})
        await store.transact(inserting(before, other))

        after = msgspec.structs.replace(
            before,
            labels={"tier": "silver", "zone": "a"},
            updated_time=MOMENT + HOUR,
            version=7,
            is_ready=True,
            waiting={"validation": MOMENT + HOUR},
            adapters="validation",
            document=b'{"id":"cls-1","spec":{}}',
            statuses=b"[1]",
        )

        def work(fleet: FleetTransaction) -> None:
            fleet.lock("cls-1")
            fleet.update(after)

        await store.transact(work)

        assert await store.get("cls-1") == after
        assert await store.get("cls-2") == other

    async def test_the_last_of_several_updates_in_one_transaction_holds(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1", labels={"step": "0"}, waiting={"dns": MOMENT})))

        def work(fleet: FleetTransaction) -> None:
            for step in (1, 2):
                before = fleet.lock("cls-1")
                assert before is not None
                fleet.update(
                    msgspec.structs.replace(
                        before,
                        version=before.version + 1,
                        labels={"step": str(step), f"only-{step}": ""},
                        waiting={f"adapter-{step}": MOMENT},
                        is_ready=step == 1,
                    )
                )

        await store.transact(work)

        resource = await store.get("cls-1")
        assert resource is not None
        assert (resource.version, resource.labels) == (3, {"step": "2", "only-2": ""})
        assert await select(store, labeled("step", Operator.IN, "2")) == ["cls-1"]
        assert await select(store, labeled("only-1", Operator.EXISTS)) == []
        assert await longest_waits(store) == [LongestWait("clusters", "adapter-2", MOMENT)]
        assert await populations(store) == {("clusters", False): 1}

    async def test_a_transaction_sees_its_own_writes(self, store: FleetStore) -> None:
        parent = stored("cls-1")
        child = node_pool("np-1", parent)
        changed = msgspec.structs.replace(child, version=2, labels={"new": "yes"})

        def work(fleet: FleetTransaction) -> list[object]:
            fleet.insert(parent)
            seen: list[object] = [fleet.lock("cls-1"), fleet.count_children("cls-1")]
            fleet.insert(child)
            seen += [fleet.lock("np-1"), fleet.count_children("cls-1"), list(fleet.children("cls-1"))]
            fleet.update(changed)
            seen += [fleet.lock("np-1"), list(fleet.children("cls-1"))]
            fleet.remove("np-1")
            seen += [fleet.lock("np-1"), fleet.count_children("cls-1"), list(fleet.children("cls-1"))]
            fleet.remember(response("key"))
            seen += [fleet.recall("ops", "key")]
            return seen

        seen = await store.transact(work)

        assert seen == [
            *(parent, 0),
            *(child, 1, [child]),
            *(changed, [changed]),
            *(None, 0, []),
            response("key"),
        ]
        assert await store.get("np-1") is None

    async def test_a_resource_inserted_and_removed_at_once_leaves_no_trace(self, store: FleetStore) -> None:
        def work(fleet: FleetTransaction) -> None:
            fleet.insert(stored("cls-1", labels={"region": "us-east"}, waiting={"dns": MOMENT}))
            fleet.remove("cls-1")
            fleet.insert(stored("cls-1", plural="manifests", name="another"))

        await store.transact(work)

        assert await select(store) == []
        assert await select(store, plural="manifests") == ["cls-1"]
        assert await populations(store) == {("manifests", False): 1}
        assert await longest_waits(store) == []

    async def test_work_that_raises_writes_nothing(self, store: FleetStore, audit: AuditLog) -> None:
        kept = stored("cls-1", labels={"region": "us-east"}, waiting={"dns": MOMENT})
        gone = stored("cls-2", labels={"region": "us-east"})
        await store.transact(inserting(kept, gone))
        await store.transact(recording_discarded("cls-1", discarded(1)))
        await store.transact(recording_discarded("cls-2", discarded(1)))

        def work(fleet: FleetTransaction) -> None:
            fleet.insert(stored("cls-3", labels={"region": "us-east"}, waiting={"slow": MOMENT}))
            fleet.lock("cls-1")
            fleet.update(
                msgspec.structs.replace(
                    kept, version=2, labels={}, is_ready=True, waiting={}, updated_time=MOMENT + HOUR
                )
            )
            fleet.lock("cls-2")
            fleet.remove("cls-2")
            fleet.record_discarded("cls-1", discarded(2), limit=1)
            fleet.record_generation("cls-1", generation(2))
            fleet.record(entry(1))
            fleet.remember(response("key"))
            raise LookupError("rejected")

        with pytest.raises(LookupError, match="rejected"):
            await store.transact(work)

        assert await store.get("cls-1") == kept
        assert await store.get("cls-2") == gone
        assert await store.get("cls-3") is None
        assert await select(store, labeled("region", Operator.EXISTS)) == ["cls-1", "cls-2"]
        assert await discarded_of(store, "cls-1") == ([discarded(1)], 1)
        assert await discarded_of(store, "cls-2") == ([discarded(1)], 1)
        assert await history_of(store, "cls-1") == ([], 0)
        assert list(await audit.find(AuditQuery(limit=9))) == []
        assert await store.transact(lambda fleet: fleet.recall("ops", "key")) is None
        assert await populations(store) == {("clusters", False): 2}
        assert await longest_waits(store) == [LongestWait("clusters", "dns", MOMENT)]

    async def test_work_that_raises_after_repeated_changes_writes_none(self, store: FleetStore) -> None:
        before = stored("cls-1", labels={"step": "0"})
        await store.transact(inserting(before))
        await store.transact(recording_discarded("cls-1", discarded(1), discarded(2)))

        def work(fleet: FleetTransaction) -> None:
            fleet.lock("cls-1")
            for step in (1, 2):
                moved = {"labels": {"step": str(step)}, "updated_time": MOMENT + step * HOUR}
                fleet.update(msgspec.structs.replace(before, version=1 + step, **moved))
                fleet.record_discarded("cls-1", discarded(2 + step), limit=2)
            fleet.remove("cls-1")
            fleet.insert(stored("cls-1", plural="manifests"))
            raise LookupError

        with pytest.raises(LookupError):
            await store.transact(work)

        assert await store.get("cls-1") == before
        assert await select(store, labeled("step", Operator.IN, "0")) == ["cls-1"]
        assert await select(store, plural="manifests") == []
        assert await discarded_of(store, "cls-1") == ([discarded(2), discarded(1)], 2)
        assert await populations(store) == {("clusters", False): 1}

    async def test_failed_work_can_be_done_again(self, store: FleetStore) -> None:
        def work(fleet: FleetTransaction) -> None:
            inserting(stored("cls-1"))(fleet)
            fleet.remember(response("key"))
            raise LookupError

        with pytest.raises(LookupError):
            await store.transact(work)
        await store.transact(inserting(stored("cls-1")))
        await store.transact(lambda fleet: fleet.remember(response("key")))

        assert await select(store) == ["cls-1"]

    async def test_an_id_is_unique_over_all_kinds(self, store: FleetStore) -> None:
        first = stored("one", plural="clusters", name="a")
        await store.transact(inserting(first))

        with pytest.raises(IdTaken):
            await store.transact(inserting(stored("one", plural="clusters", name="b")))
        with pytest.raises(IdTaken):
            await store.transact(inserting(stored("one", plural="manifests", name="b")))

        assert await store.get("one") == first
        assert await populations(store) == {("clusters", False): 1}

    async def test_a_name_is_unique_within_kind_and_parent(self, store: FleetStore) -> None:
        first, second = stored("cls-1", name="same"), stored("cls-2", name="other")
        pool = node_pool("np-1", first, name="same")
        await store.transact(inserting(first, second, pool))

        with pytest.raises(NameTaken):
            await store.transact(inserting(stored("cls-3", name="same")))
        with pytest.raises(NameTaken):
            await store.transact(inserting(node_pool("np-2", first, name="same")))

        await store.transact(inserting(stored("man-1", plural="manifests", name="same")))
        await store.transact(inserting(node_pool("np-3", second, name="same")))
        assert await select(store, plural="nodepools") == ["np-1", "np-3"]

    async def test_names_that_look_alike_are_different(self, store: FleetStore) -> None:
        names = ["straße", "strasse", "Straße", "stra\u00dfe ", "e\u0301", "\u00e9", "a", "A"]

        await store.transact(inserting(*(stored(f"cls-{n}", name=name) for n, name in enumerate(names))))

        assert len(await select(store)) == len(names)

    async def test_ids_that_look_alike_are_different(self, store: FleetStore) -> None:
        await store.transact(
            inserting(stored("A", labels={"case": "upper"}), stored("a", labels={"case": "lower"}))
        )

        upper, lower = await store.get("A"), await store.get("a")

        assert upper is not None
        assert lower is not None
        assert (upper.labels["case"], lower.labels["case"]) == ("upper", "lower")

    async def test_removal_frees_id_and_name(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1", name="same", labels={"old": ""}, waiting={"dns": MOMENT})))
        await store.transact(recording_discarded("cls-1", discarded(1)))

        await store.transact(removing("cls-1"))
        assert await store.get("cls-1") is None
        assert await longest_waits(store) == []
        again = stored("cls-1", name="same", labels={"new": ""})
        await store.transact(inserting(again))

        assert await store.get("cls-1") == again
        assert await select(store, labeled("old", Operator.EXISTS)) == []
        assert await discarded_of(store, "cls-1") == ([], 0)

    async def test_a_name_can_move_to_another_resource_in_one_transaction(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1", name="same")))

        def work(fleet: FleetTransaction) -> None:
            removing("cls-1")(fleet)
            fleet.insert(stored("cls-2", name="same"))

        await store.transact(work)

        assert await select(store) == ["cls-2"]

    @pytest.mark.parametrize(
        "clash",
        [
            lambda fleet: fleet.insert(stored("cls-1", name="new")),
            lambda fleet: fleet.insert(stored("new", name="name-of-cls-1")),
            lambda fleet: fleet.remember(response("key")),
        ],
        ids=["id", "name", "key"],
    )
    async def test_a_violated_unique_constraint_ends_the_transaction(
        self, store: FleetStore, audit: AuditLog, clash: Callable[[FleetTransaction], None]
    ) -> None:
        await store.transact(inserting(stored("cls-1")))
        await store.transact(lambda fleet: fleet.remember(response("key")))

        def work(fleet: FleetTransaction) -> None:
            fleet.insert(stored("cls-2"))
            fleet.record(entry(1))
            with suppress(AlreadyExists):
                clash(fleet)

        with suppress(AlreadyExists):
            await store.transact(work)

        assert await select(store) == ["cls-1"]
        assert list(await audit.find(AuditQuery(limit=9))) == []

    async def test_an_entry_may_concern_another_resource_than_the_last_write(
        self, store: FleetStore, audit: AuditLog
    ) -> None:
        """The entry may be about a removed child while the last write is to its parent."""
        parent = stored("cls-1", document=b"0")
        await store.transact(inserting(parent, node_pool("np-1", parent)))

        def work(fleet: FleetTransaction) -> None:
            removing("np-1")(fleet)
            fleet.record(entry(1, resource_id="np-1"))
            incrementing("cls-1")(fleet)

        await store.transact(work)

        assert list(await audit.find(AuditQuery(limit=9))) == [entry(1, resource_id="np-1")]
        after = await store.get("cls-1")
        assert after is not None
        assert after.document == b"1"

    async def test_children_are_direct_and_ordered_oldest_first(self, store: FleetStore) -> None:
        root = stored("root")
        children = [node_pool(f"child-{n}", root, created=MOMENT + (9 - n) * SECOND) for n in range(3)]
        grandchild = stored("grandchild", plural="machines", parent=children[0])
        unrelated = stored("unrelated")
        await store.transact(inserting(root, *children, grandchild, unrelated))

        def work(fleet: FleetTransaction) -> list[list[StoredResource]]:
            fleet.lock("grandchild")
            return [list(fleet.children(each)) for each in ("root", "child-0", "grandchild")]

        assert await store.transact(work) == [children[::-1], [grandchild], []]
        all_ids = ("root", "child-0", "child-1", "grandchild", "unrelated", "absent")
        counted = await store.transact(lambda fleet: [fleet.count_children(each) for each in all_ids])
        assert counted == [3, 1, 0, 0, 0, 0]

    async def test_a_family_can_be_removed_bottom_up(self, store: FleetStore) -> None:
        root = stored("root")
        child = node_pool("child", root)
        grandchild = stored("grandchild", plural="machines", parent=child)
        await store.transact(inserting(root, child, grandchild))

        await store.transact(removing("grandchild", "child", "root"))

        assert await populations(store) == {}

    async def test_an_open_database_is_available(self, backend: Backend) -> None:
        await backend.fleet.transact(inserting(stored("cls-1")))

        assert backend.database.unavailable_reason() is None

    async def test_closing_twice_is_harmless(self, backend: Backend) -> None:
        await backend.fleet.transact(inserting(stored("cls-1")))

        await backend.database.close()
        await backend.database.close()

    async def test_data_is_there_after_the_database_is_reopened(self, stores: Stores) -> None:
        resource = stored("cls-1", labels={"region": "us-east"}, waiting={"dns": MOMENT})
        backend = await stores.empty()
        store = backend.fleet
        await store.transact(inserting(resource))
        await store.transact(recording_discarded("cls-1", discarded(1)))
        await store.transact(recording_generations("cls-1", generation(1)))
        await store.transact(recording(entry(1)))
        await store.transact(lambda fleet: fleet.remember(response("key")))

        backend = await stores.reopened(backend)
        store = backend.fleet

        try:
            assert await store.get("cls-1") == resource
            assert await select(store, labeled("region", Operator.IN, "us-east")) == ["cls-1"]
            assert await discarded_of(store, "cls-1") == ([discarded(1)], 1)
            assert await history_of(store, "cls-1") == ([generation(1)], 1)
            assert list(await backend.audit.find(AuditQuery(limit=9))) == [entry(1)]
            assert await store.transact(lambda fleet: fleet.recall("ops", "key")) == response("key")
            assert await populations(store) == {("clusters", False): 1}
            assert await store.transact(incrementing_version("cls-1")) == 2
        finally:
            await backend.database.close()

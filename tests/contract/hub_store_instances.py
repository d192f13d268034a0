"""The part of the contract of `ports.hub_store.HubStore` that is about instances."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta

import msgspec
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.core.labels import parse
from sentinel.ports.audit import AuditQuery
from sentinel.ports.hub_store import HubStore, HubTransaction, InstanceQuery
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import MOMENT, SECOND, Stores, entry, together
from tests.support.hub.store_records import (
    MICROSECOND,
    HubSuite,
    all_events,
    appending,
    full_instance,
    hash_of,
    instance,
    listed,
    opening_session,
    saving,
)

API_1 = VersionName("api", 1)


class InstanceContract(HubSuite):
    """Instances are kept, changed in transactions, and found by state, label and time."""

    async def test_an_instance_is_read_as_it_was_saved(self, stores: Stores, backend: Backend) -> None:
        full, plain = full_instance("edge-1"), instance("edge-2")
        await backend.hub.transact(saving(full, plain))

        reopened = await stores.reopened(backend)

        assert await reopened.hub.instance("edge-1") == full
        assert await reopened.hub.instance("edge-2") == plain
        assert await reopened.hub.instance("EDGE-1") is None
        assert await reopened.hub.instance("edge\0") is None
        await reopened.database.close()

    async def test_a_saved_instance_replaces_the_one_before(self, hub: HubStore) -> None:
        await hub.transact(saving(full_instance("edge-1")))

        await hub.transact(saving(instance("edge-1", State.ONLINE)))

        assert await hub.instance("edge-1") == instance("edge-1", State.ONLINE)

    async def test_a_transaction_reads_what_it_has_saved(self, hub: HubStore) -> None:
        def work(transaction: HubTransaction) -> bool:
            first, second = instance("edge-1"), full_instance("edge-1")
            was_known = transaction.instance("edge-1") is not None
            transaction.save_instance(first)
            read_first = transaction.instance("edge-1") == first
            transaction.save_instance(second)
            return not was_known and read_first and transaction.instance("edge-1") == second

        assert await hub.transact(work)
        assert await hub.instance("edge-1") == full_instance("edge-1")

    async def test_only_an_instance_that_was_read_can_be_saved(self, hub: HubStore) -> None:
        with pytest.raises(RuntimeError, match="edge-1 was not read in this transaction"):
            await hub.transact(lambda transaction: transaction.save_instance(instance("edge-1")))

    async def test_a_failed_transaction_changes_nothing(self, backend: Backend) -> None:
        hub = backend.hub
        await hub.transact(saving(instance("edge-1")))

        def work(transaction: HubTransaction) -> None:
            saving(full_instance("edge-1"), instance("edge-2"))(transaction)
            transaction.note_assigned("edge-1", 1, API_1)
            appending("edge-1")(transaction)
            transaction.record(entry(1))
            raise LookupError("the work failed")

        with pytest.raises(LookupError):
            await hub.transact(work)
        assert await hub.instance("edge-1") == instance("edge-1")
        assert await hub.instance("edge-2") is None
        assert not await hub.was_assigned("edge-1", 1, API_1)
        assert await all_events(hub) == []
        assert list(await backend.audit.find(AuditQuery(limit=9))) == []

    async def test_an_audit_entry_is_written_with_the_change(self, backend: Backend) -> None:
        def work(transaction: HubTransaction) -> None:
            saving(instance("edge-1"))(transaction)
            transaction.record(entry(1))

        await backend.hub.transact(work)

        assert list(await backend.audit.find(AuditQuery(limit=9))) == [entry(1)]

    async def test_concurrent_registrations_of_one_id_are_all_counted(self, hub: HubStore) -> None:
        sessions = await together(*(hub.transact(opening_session("edge-1")) for _ in range(20)))

        found = await hub.instance("edge-1")
        assert sorted(map(str, sessions)) == sorted(map(str, range(1, 21)))
        assert found is not None
        assert found.life.session == 20
        assert [event.data for event in await all_events(hub)] == [b"%d" % session for session in range(1, 21)]

    async def test_instances_are_found_by_their_ids(self, hub: HubStore) -> None:
        many = [instance(f"edge-{number}") for number in range(100)]
        await hub.transact(saving(*many))

        found = await hub.instances_by_id(
            [*(each.id for each in many[:70]), "absent", "edge-1", "edge\0", "'\"\\"]
        )

        assert found == {each.id: each for each in many[:70]}
        assert await hub.instances_by_id([]) == {}

    async def test_instances_are_listed_in_the_order_of_their_ids(self, hub: HubStore) -> None:
        await hub.transact(saving(*(instance(each) for each in ("b", "a", "B", "a-1", "c"))))

        pages = [await listed(hub, InstanceQuery(after=after, limit=2)) for after in ("", "a", "b")]

        assert pages == [(["B", "a"], 5, False), (["a-1", "b"], 5, False), (["c"], 5, True)]
        assert await listed(hub, InstanceQuery(after="c", limit=2)) == ([], 5, True)
        assert await listed(hub, InstanceQuery(after="a-1", limit=2)) == (["b", "c"], 5, True)

    async def test_a_page_has_whole_instances(self, hub: HubStore) -> None:
        await hub.transact(saving(full_instance("a"), instance("b")))

        page = await hub.instances(InstanceQuery(limit=9))

        assert list(page.instances) == [full_instance("a"), instance("b")]

    async def test_removed_instances_are_listed_only_by_that_state(self, hub: HubStore) -> None:
        await hub.transact(saving(*(instance(state.value, state) for state in State)))
        present = sorted(state.value for state in State if state is not State.REMOVED)

        assert await listed(hub, InstanceQuery(limit=99)) == (present, len(present), True)
        assert await listed(hub, InstanceQuery(limit=99, states=[State.REMOVED])) == (["removed"], 1, True)
        assert await listed(hub, InstanceQuery(limit=1, states=[State.ONLINE, State.REMOVED])) == (
            ["online"],
            2,
            False,
        )

    async def test_a_selector_over_labels_picks_instances(self, hub: HubStore) -> None:
        zones = {f"edge-{number}": "ab"[number % 2] for number in range(10)}
        await hub.transact(saving(*(instance(each, labels={"zone": zone}) for each, zone in zones.items())))
        matches = parse("zone=a").matches

        pages = [
            await listed(hub, InstanceQuery(after=after, limit=2, matches=matches))
            for after in ("", "edge-2", "edge-6")
        ]

        assert pages == [
            (["edge-0", "edge-2"], 5, False),
            (["edge-4", "edge-6"], 5, False),
            (["edge-8"], 5, True),
        ]
        assert await listed(hub, InstanceQuery(after="edge-2", limit=3, matches=matches)) == (
            ["edge-4", "edge-6", "edge-8"],
            5,
            True,
        )
        assert await listed(hub, InstanceQuery(limit=9, matches=parse("zone=c").matches)) == ([], 0, True)

    async def test_selectors_and_states_are_combined(self, hub: HubStore) -> None:
        labels = {"zone": "a"}
        await hub.transact(
            saving(
                instance("a", State.OFFLINE, labels=labels),
                instance("b", State.ONLINE, labels=labels),
                instance("c", State.OFFLINE),
                instance("d", State.REMOVED, labels=labels),
            )
        )
        matches = parse("zone=a").matches

        assert await listed(hub, InstanceQuery(limit=9, states=[State.OFFLINE], matches=matches)) == (
            ["a"],
            1,
            True,
        )
        assert await listed(hub, InstanceQuery(limit=9, matches=matches)) == (["a", "b"], 2, True)

    async def test_silent_instances_are_connected_and_long_unseen(self, hub: HubStore) -> None:
        seen = {
            "degraded": (State.DEGRADED, 1),
            "deploying": (State.DEPLOYING, 3),
            "online": (State.ONLINE, 2),
            "just-in-time": (State.ONLINE, 4),
            "offline": (State.OFFLINE, 0),
            "draining": (State.DRAINING, 0),
            "removed": (State.REMOVED, 0),
        }
        await hub.transact(
            saving(*(instance(each, state, last_seen=MOMENT + at * SECOND) for each, (state, at) in seen.items()))
        )

        found = await hub.silent(MOMENT + 4 * SECOND, limit=9)
        first = await hub.silent(MOMENT + 4 * SECOND, limit=1)

        assert [each.id for each in found] == ["degraded", "online", "deploying"]
        assert list(first) == [instance("degraded", State.DEGRADED, last_seen=MOMENT + SECOND)]

    async def test_long_offline_or_drained_instances_are_leaving(self, hub: HubStore) -> None:
        early, late = MOMENT - MICROSECOND, MOMENT
        await hub.transact(
            saving(
                instance("long-offline", State.OFFLINE, since=early),
                instance("offline", State.OFFLINE, since=late),
                instance("drained", State.DRAINING, deadline=early),
                instance("draining", State.DRAINING, since=early, deadline=late),
                instance("removed", State.REMOVED, since=early, deadline=early),
                instance("online", State.ONLINE, since=early),
            )
        )

        both = await hub.leaving(offline_before=MOMENT, drain_before=MOMENT, limit=9)
        one = await hub.leaving(offline_before=MOMENT, drain_before=MOMENT, limit=1)
        offline = await hub.leaving(offline_before=MOMENT, drain_before=early, limit=9)
        drained = await hub.leaving(offline_before=early, drain_before=MOMENT, limit=9)

        assert (list(both), list(one)) == (["drained", "long-offline"], ["drained"])
        assert (list(offline), list(drained)) == (["long-offline"], ["drained"])

    async def test_long_removed_instances_are_deleted(self, hub: HubStore) -> None:
        early, late = MOMENT - MICROSECOND, MOMENT
        await hub.transact(
            saving(
                *(instance(name, State.REMOVED, since=early) for name in ("gone-c", "gone-a", "gone-b")),
                instance("just-gone", State.REMOVED, since=late),
                instance("offline", State.OFFLINE, since=early),
                instance("online", State.ONLINE, since=early),
            )
        )

        counts = [await hub.expire_removed(MOMENT, limit=2)]
        left = await hub.instances_by_id(["gone-a", "gone-b", "gone-c"])
        counts += [await hub.expire_removed(MOMENT, limit=2), await hub.expire_removed(MOMENT, limit=2)]

        assert (counts, [*left]) == ([2, 1, 0], ["gone-c"])
        assert await hub.count_by_state() == dict.fromkeys((State.OFFLINE, State.ONLINE, State.REMOVED), 1)
        assert await hub.instance("just-gone") is not None

    async def test_a_deleted_instance_leaves_nothing_assigned(self, hub: HubStore) -> None:
        def note(transaction: HubTransaction) -> None:
            for name in ("gone", "here"):
                transaction.note_assigned(name, 1, API_1)

        await hub.transact(saving(instance("gone", State.REMOVED), instance("here", State.ONLINE)))
        await hub.transact(note)

        await hub.expire_removed(MOMENT + SECOND, limit=9)

        assert not await hub.was_assigned("gone", 1, API_1)
        assert await hub.was_assigned("here", 1, API_1)

    async def test_an_id_that_registers_again_is_not_deleted(self, hub: HubStore) -> None:
        names = [f"edge-{number}" for number in range(20)]
        await hub.transact(saving(*(instance(name, State.REMOVED) for name in names)))

        def register(name: str) -> Awaitable[None]:
            return hub.transact(saving(instance(name, State.ONLINE, incarnation=2)))

        await together(*(register(name) for name in names), hub.expire_removed(MOMENT + SECOND, limit=99))

        assert await hub.count_by_state() == {State.ONLINE: 20}

    async def test_instances_are_counted_by_state(self, hub: HubStore) -> None:
        states = [State.ONLINE, State.ONLINE, State.OFFLINE, State.REMOVED]
        await hub.transact(saving(*(instance(f"i-{number}", state) for number, state in enumerate(states))))

        assert await hub.count_by_state() == {State.ONLINE: 2, State.OFFLINE: 1, State.REMOVED: 1}

    async def test_instances_out_of_sync_run_something_else(self, hub: HubStore) -> None:
        await hub.transact(
            saving(
                instance("in-sync", assigned=API_1, reported_hash=hash_of(API_1)),
                instance("other", assigned=API_1, reported_hash="00"),
                instance("nothing-yet", assigned=API_1),
                instance("unassigned", reported_hash="00"),
                instance("removed", State.REMOVED, assigned=API_1),
                instance("offline", State.OFFLINE, assigned=API_1),
            )
        )

        found = await hub.out_of_sync(limit=9)

        assert [each.id for each in found] == ["nothing-yet", "offline", "other"]
        assert [each.id for each in await hub.out_of_sync(limit=2)] == ["nothing-yet", "offline"]
        assert found[0] == instance("nothing-yet", assigned=API_1)

    async def test_what_was_assigned_is_remembered_for_an_incarnation(self, hub: HubStore) -> None:
        def work(transaction: HubTransaction) -> None:
            transaction.note_assigned("edge-1", 1, API_1)
            transaction.note_assigned("edge-1", 1, API_1)
            transaction.note_assigned("edge-2", 2, VersionName("api", 2))

        await hub.transact(work)
        await hub.transact(work)

        assert await hub.was_assigned("edge-1", 1, API_1)
        assert not await hub.was_assigned("edge-1", 2, API_1)
        assert not await hub.was_assigned("edge-1", 1, VersionName("api", 2))
        assert not await hub.was_assigned("edge-1", 1, VersionName("web", 1))
        assert await hub.was_assigned("edge-2", 2, VersionName("api", 2))

    async def test_any_time_and_text_can_be_stored(self, hub: HubStore) -> None:
        old = instance("edge-1", since=MOMENT.replace(year=1), last_seen=MOMENT + timedelta(days=365_000))
        odd = msgspec.structs.replace(old, name="", hostname="\N{GRINNING FACE}\u200d'\"\\%_")

        await hub.transact(saving(odd))

        assert await hub.instance("edge-1") == odd

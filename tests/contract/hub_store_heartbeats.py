"""The part of the contract of `ports.hub_store.HubStore` that is about heartbeats and metrics."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Sync
from sentinel.ports.hub_store import HubStore, InstanceRecord
from tests.support.fleet.store_records import HOUR, MOMENT, SECOND, together
from tests.support.hub.store_records import (
    MINUTE,
    HubSuite,
    all_events,
    full_instance,
    heartbeats,
    instance,
    opening_session,
    sample,
    samples_of,
    saving,
)

EDGE = instance("edge-1", incarnation=2, session=3)


def second_session(record: InstanceRecord) -> InstanceRecord:
    return msgspec.structs.replace(
        record, life=msgspec.structs.replace(record.life, session=record.life.session + 1)
    )


def next_incarnation(record: InstanceRecord) -> InstanceRecord:
    life = msgspec.structs.replace(record.life, incarnation=record.life.incarnation + 1, session=1)
    return msgspec.structs.replace(record, life=life)


class HeartbeatContract(HubSuite):
    """A flush writes what heartbeats reported, and never turns back newer values."""

    async def test_a_flush_writes_only_what_heartbeats_report(self, hub: HubStore) -> None:
        before = full_instance("edge-1")
        await hub.transact(saving(before, instance("edge-2")))
        beats = msgspec.structs.replace(heartbeats(before, 5), last_in_sync=MOMENT + 4 * SECOND)

        await hub.flush([beats])

        assert await hub.instance("edge-1") == msgspec.structs.replace(
            before,
            life=msgspec.structs.replace(before.life, last_seen=MOMENT + 5 * SECOND, message="serving"),
            status=beats.status,
            sync=msgspec.structs.replace(before.sync, reported_hash="5", last_in_sync=MOMENT + 4 * SECOND),
        )
        assert await hub.instance("edge-2") == instance("edge-2")
        assert await all_events(hub) == []

    async def test_a_flush_may_have_any_number_of_instances(self, hub: HubStore) -> None:
        many = [instance(f"edge-{number}") for number in range(300)]
        await hub.transact(saving(*many))

        await hub.flush([])
        await hub.flush([heartbeats(each, 7, samples=[sample(7)]) for each in reversed(many)])

        found = await hub.instances_by_id([each.id for each in many])
        assert {each.life.last_seen for each in found.values()} == {MOMENT + 7 * SECOND}
        assert await samples_of(hub, "edge-299") == [7]

    async def test_an_earlier_session_adds_only_its_samples(self, hub: HubStore) -> None:
        later = second_session(EDGE)
        await hub.transact(saving(later))

        await hub.flush([heartbeats(EDGE, 5, samples=[sample(1)])])

        assert await hub.instance("edge-1") == later
        assert await samples_of(hub, "edge-1") == [1]

    async def test_an_earlier_incarnation_changes_nothing(self, hub: HubStore) -> None:
        # Both are in their first session.
        earlier = instance("edge-1", incarnation=2, session=1)
        reborn = next_incarnation(earlier)
        await hub.transact(saving(reborn))

        await hub.flush([heartbeats(earlier, 5, samples=[sample(1)]), heartbeats(instance("absent"), 5)])

        assert await hub.instance("edge-1") == reborn
        assert await samples_of(hub, "edge-1") == []
        assert await hub.instance("absent") is None
        assert await hub.expire_metrics(MOMENT + HOUR, limit=9) == 0

    async def test_newer_values_are_not_turned_back(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, 9)])

        await hub.flush([heartbeats(EDGE, 8, message="late", samples=[sample(8)])])

        found = await hub.instance("edge-1")
        assert found is not None
        assert (found.life.last_seen, found.life.message) == (MOMENT + 9 * SECOND, "serving")
        assert (found.status.uptime_seconds, found.sync.reported_hash) == (9, "9")
        assert await samples_of(hub, "edge-1") == [8]

    async def test_the_time_in_sync_never_goes_back(self, hub: HubStore) -> None:
        in_sync = msgspec.structs.replace(EDGE, sync=Sync(last_in_sync=MOMENT + 6 * SECOND))
        await hub.transact(saving(in_sync))
        unknown, earlier, later = (
            msgspec.structs.replace(heartbeats(EDGE, 7), last_in_sync=time)
            for time in (None, MOMENT + 5 * SECOND, MOMENT + 7 * SECOND)
        )

        times = []
        for beats in (unknown, earlier, later):
            await hub.flush([beats])
            found = await hub.instance("edge-1")
            times.append(None if found is None else found.sync.last_in_sync)

        assert times == [MOMENT + 6 * SECOND, MOMENT + 6 * SECOND, MOMENT + 7 * SECOND]

    async def test_a_flush_can_be_repeated(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        beats = heartbeats(EDGE, 5, samples=[sample(4), sample(5)])

        await hub.flush([beats])
        once = await hub.instance("edge-1")
        await hub.flush([beats])

        assert await hub.instance("edge-1") == once
        assert await samples_of(hub, "edge-1") == [4, 5]

    async def test_flushes_and_transactions_do_not_block_each_other(self, hub: HubStore) -> None:
        many = [instance(f"edge-{number:02}") for number in range(40)]
        await hub.transact(saving(*many))
        beats = [heartbeats(each, 5, samples=[sample(5)]) for each in many]

        flushes = [hub.flush(beats), hub.flush(beats[::-1]), hub.flush(beats[20:] + beats[:20])]
        registrations = [hub.transact(opening_session(each.id)) for each in many[::-1]]
        results = await together(*flushes, *registrations)

        assert results == [None] * 3 + [2] * 40

    async def test_samples_are_read_as_they_were_reported(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        reported = [
            sample(0.5, requests_total=10, latency_p50_ms=0.1, latency_p99_ms=1.7e308),
            sample(1, requests_total=2**63 - 1, requests_failed=3, bytes_sent=2**62, bytes_received=1),
        ]

        await hub.flush([heartbeats(EDGE, samples=reported)])

        assert list(await hub.metrics("edge-1", since=MOMENT, limit=9)) == reported

    async def test_the_first_sample_of_a_time_is_kept(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))

        await hub.flush([heartbeats(EDGE, samples=[sample(1, 10), sample(1, 20)])])
        await hub.flush([heartbeats(EDGE, samples=[sample(1, 30)])])

        assert list(await hub.metrics("edge-1", since=MOMENT, limit=9)) == [sample(1, 10)]

    async def test_buffered_samples_are_found_in_the_order_of_their_times(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE, instance("edge-2")))
        await hub.flush(
            [heartbeats(EDGE, samples=[sample(9)]), heartbeats(instance("edge-2"), samples=[sample(2)])]
        )

        await hub.flush([heartbeats(EDGE, samples=[sample(3), sample(1), sample(5)])])

        assert await samples_of(hub, "edge-1") == [1, 3, 5, 9]
        assert await samples_of(hub, "edge-1", since=MOMENT + 3 * SECOND) == [3, 5, 9]
        assert await samples_of(hub, "edge-1", limit=2) == [1, 3]
        assert await samples_of(hub, "absent") == []

    async def test_a_new_incarnation_has_no_samples_of_the_last(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, samples=[sample(1)])])
        reborn = next_incarnation(EDGE)

        await hub.transact(saving(reborn))
        await hub.flush([heartbeats(reborn, samples=[sample(1), sample(2)])])

        assert await samples_of(hub, "edge-1") == [1, 2]

    async def test_a_removed_instance_shows_its_samples(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, samples=[sample(1)])])

        life = msgspec.structs.replace(EDGE.life, state=State.REMOVED)
        await hub.transact(saving(msgspec.structs.replace(EDGE, life=life)))

        assert await samples_of(hub, "edge-1") == [1]


class MetricsRetentionContract(HubSuite):
    """Old samples are thinned out, then deleted, in bounded batches."""

    async def test_old_intervals_keep_the_last_and_the_worst_sample(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        slow = {90: 9.0, 390: 5.0}
        reported = [sample(at, at, latency_p99_ms=slow.get(at, 1.0)) for at in range(0, 900, 30)]
        await hub.flush([heartbeats(EDGE, samples=reported)])

        dealt_with = await thin_all(hub, MOMENT + 10 * MINUTE)

        assert dealt_with == 20
        assert await samples_of(hub, "edge-1") == [90, 270, 390, 570, *range(600, 900, 30)]

    async def test_only_whole_intervals_are_thinned_out(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in (0, 60, 120, 300, 360, 420)])])

        early = await hub.thin_metrics(MOMENT + 299 * SECOND, limit=9)
        first = await hub.thin_metrics(MOMENT + 599 * SECOND, limit=9)

        assert (early, first) == (0, 3)
        assert await samples_of(hub, "edge-1") == [120, 300, 360, 420]

    async def test_both_samples_beside_a_reset_are_kept(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        within = [sample(at, total) for at, total in ((0, 1), (50, 7), (100, 2), (150, 3), (200, 4))]
        between = [sample(at, total) for at, total in ((300, 1), (350, 5), (400, 6), (450, 7))]
        await hub.flush([heartbeats(EDGE, samples=within + between)])

        await thin_all(hub, MOMENT + 10 * MINUTE)

        assert await samples_of(hub, "edge-1") == [50, 100, 200, 300, 450]

    async def test_a_reset_after_a_long_silence_is_not_seen(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        reported = [sample(0, 9), sample(600, 1), sample(650, 2, latency_p99_ms=5.0), sample(670, 3)]
        await hub.flush([heartbeats(EDGE, samples=reported)])

        await thin_all(hub, MOMENT + 15 * MINUTE)

        assert await samples_of(hub, "edge-1") == [0, 650, 670]

    @pytest.mark.parametrize("limit", [1, 3, 100])
    async def test_batches_of_any_size_have_the_same_result(self, hub: HubStore, limit: int) -> None:
        edges = [instance(f"edge-{number}") for number in range(3)]
        await hub.transact(saving(*edges))
        reported = [sample(at, at) for at in range(0, 1000, 35)]
        await hub.flush([heartbeats(each, samples=reported) for each in edges])

        dealt_with = await thin_all(hub, MOMENT + 20 * MINUTE, limit=limit)

        assert dealt_with == 3 * len(reported)
        for each in edges:
            assert await samples_of(hub, each.id) == [280, 595, 875, 980]

    async def test_a_batch_deals_with_as_many_samples_as_it_may(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in range(0, 1500, 100)])])

        dealt_with = [await hub.thin_metrics(MOMENT + 25 * MINUTE, limit=7) for _ in range(3)]

        assert dealt_with == [9, 6, 0]

    async def test_late_samples_are_thinned_out_with_the_others(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE, instance("edge-0"), instance("edge-2")))
        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in (0, 100, 200)])])
        await thin_all(hub, MOMENT + 5 * MINUTE)

        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in (50, 150, 250)])])
        again = await thin_all(hub, MOMENT + 5 * MINUTE)

        assert again == 3
        assert await samples_of(hub, "edge-1") == [250]

    async def test_a_batch_leaves_other_series_alone(self, hub: HubStore) -> None:
        a, b, c = instance("a"), instance("b"), instance("c")
        await hub.transact(saving(a, b, c))
        # What was kept of b because of a reset is no longer beside one once a late sample is there.
        before = [sample(290, 9), sample(300, 5), sample(310, 6, latency_p99_ms=5.0), sample(320, 7)]
        await hub.flush([heartbeats(b, samples=before)])
        await thin_all(hub, MOMENT + 10 * MINUTE)
        await hub.flush([heartbeats(each, samples=[sample(330, 1)]) for each in (a, c)])
        await hub.flush([heartbeats(b, samples=[sample(295, 1)])])

        dealt_with = await thin_all(hub, MOMENT + 10 * MINUTE)

        assert dealt_with == 3
        assert await samples_of(hub, "b") == [290, 295, 300, 310, 320]

    async def test_samples_of_earlier_incarnations_are_thinned_and_expire(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE))
        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in (0, 20, 40)])])
        await hub.transact(saving(next_incarnation(EDGE)))

        thinned = await thin_all(hub, MOMENT + 5 * MINUTE)
        expired = await hub.expire_metrics(MOMENT + HOUR, limit=9)

        assert (thinned, expired) == (3, 1)

    async def test_samples_of_the_oldest_intervals_expire_first(self, hub: HubStore) -> None:
        await hub.transact(saving(EDGE, instance("edge-2")))
        await hub.flush([heartbeats(EDGE, samples=[sample(at, at) for at in (0, 100, 200, 300, 301, 302)])])
        await hub.flush([heartbeats(instance("edge-2"), samples=[sample(1), sample(302)])])
        await thin_all(hub, MOMENT + 5 * MINUTE)

        first = await hub.expire_metrics(MOMENT + 302 * SECOND, limit=2)
        left = await samples_of(hub, "edge-1"), await samples_of(hub, "edge-2")
        others = [await hub.expire_metrics(MOMENT + 302 * SECOND, limit=2) for _ in range(3)]

        assert (first, left) == (2, ([300, 301, 302], [302]))
        assert others == [2, 0, 0]
        assert await samples_of(hub, "edge-1") == [302]
        assert await samples_of(hub, "edge-2") == [302]

    async def test_samples_are_found_over_gaps_of_any_length(self, hub: HubStore) -> None:
        times = [0, 299, *range(300, 90 * 300, 300), 86_400, 10_000_000]
        await hub.transact(saving(EDGE, instance("edge-2")))
        await hub.flush([heartbeats(EDGE, samples=[sample(at) for at in times])])
        await hub.flush([heartbeats(instance("edge-2"), samples=[sample(at + 1_000) for at in times])])

        assert await samples_of(hub, "edge-1") == times
        assert await samples_of(hub, "edge-1", since=MOMENT + 300 * SECOND) == times[2:]
        assert await samples_of(hub, "edge-1", since=MOMENT + 301 * SECOND, limit=70) == times[3:73]
        assert await samples_of(hub, "edge-1", since=MOMENT + 10_000_001 * SECOND) == []


async def thin_all(hub: HubStore, before: datetime, *, limit: int = 5) -> int:
    total = 0
    while count := await hub.thin_metrics(before, limit=limit):
        total += count
    return total

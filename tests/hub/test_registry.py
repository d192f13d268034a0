"""What a hub knows of instances stays right while reads overlap, hubs compete, and answers come late."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from random import Random

import msgspec
import pytest

from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.hub.event_feed import EventFeed
from sentinel.hub.registry import KnownInstance, Registry, session_key, with_reports
from sentinel.ports.hub_store import HubEvent, HubEventType, HubStore, HubTransaction, InstanceRecord
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing import loop
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.hub_store import MemoryHubStore
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.fleet.store_records import MOMENT, SECOND
from tests.support.hub.store_records import instance


class LateStore(MemoryHubStore):
    """Results of reads come when the test says so."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.gates: list[asyncio.Event] = []
        """One for each of the next reads. Reads after the last are not held back."""

    async def instances_by_id(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        gate = self.gates.pop(0) if self.gates else None
        found = await super().instances_by_id(instance_ids)
        if gate is not None:
            await gate.wait()
        return found


async def save(store: HubStore, record: InstanceRecord) -> None:
    def work(transaction: HubTransaction) -> None:
        transaction.instance(record.id)
        transaction.save_instance(record)
        transaction.append_event(HubEventType.INSTANCE_CHANGED, record.id, b"", MOMENT)

    await store.transact(work)


def event(subject: str) -> HubEvent:
    return HubEvent(number=1, time=MOMENT, type=HubEventType.INSTANCE_CHANGED, subject=subject)


async def opened() -> LateStore:
    database = MemoryDatabase()
    await database.open()
    return LateStore(database)


@simulated
async def test_a_read_that_began_earlier_does_not_undo_a_later_one() -> None:
    store = await opened()
    registry = Registry(store)
    await save(store, instance("edge-1", session=1))
    store.gates = [asyncio.Event()]
    gate = store.gates[0]
    early = asyncio.create_task(registry.refresh("edge-1"))
    await asyncio.sleep(1)
    await save(store, instance("edge-1", session=2))

    await registry.refresh("edge-1")
    gate.set()
    known = await early

    assert known is not None
    assert known.session == (1, 2)


@simulated
async def test_a_change_during_the_first_read_is_not_missed() -> None:
    store = await opened()
    registry = Registry(store)
    await save(store, instance("edge-1", session=1))
    store.gates = [asyncio.Event()]
    gate = store.gates[0]
    first = asyncio.create_task(registry.find("edge-1"))
    await asyncio.sleep(1)
    await save(store, instance("edge-1", session=2))

    await registry.take([event("edge-1")])
    gate.set()
    known = await first

    assert known is not None
    assert known.session == (1, 2)


@simulated
async def test_events_about_instances_that_nobody_talks_about_cost_nothing() -> None:
    store = await opened()
    registry = Registry(store)
    await save(store, instance("edge-1"))

    await registry.take([event("edge-1")])

    assert len(registry) == 0


@simulated
async def test_an_unknown_instance_is_not_remembered() -> None:
    store = await opened()
    registry = Registry(store)

    found = await registry.find("edge-1")

    assert found is None
    assert len(registry) == 0


def test_reports_of_the_same_session_are_kept() -> None:
    stored = instance("edge-1", session=2, last_seen=MOMENT)
    heard = msgspec.structs.replace(
        instance("edge-1", session=2, last_seen=MOMENT + SECOND, reported_hash="ab"), name="old name"
    )

    merged = with_reports(stored, heard)

    assert merged.life.last_seen == MOMENT + SECOND
    assert merged.sync.reported_hash == "ab"
    assert merged.name == stored.name


@pytest.mark.parametrize(
    "heard",
    [
        instance("edge-1", session=1, last_seen=MOMENT + SECOND, reported_hash="ab"),
        instance("edge-1", incarnation=2, session=2, last_seen=MOMENT + SECOND, reported_hash="ab"),
        instance("edge-1", session=2, last_seen=MOMENT - SECOND, reported_hash="ab"),
    ],
    ids=["earlier session", "other incarnation", "older"],
)
def test_reports_of_another_session_or_older_ones_are_dropped(heard: InstanceRecord) -> None:
    stored = instance("edge-1", session=2, last_seen=MOMENT)

    assert with_reports(stored, heard) == stored


@simulated
async def test_samples_wait_for_the_next_flush_and_are_bounded() -> None:
    store = await opened()
    registry = Registry(store)
    await save(store, instance("edge-1"))
    known = await registry.find("edge-1")
    assert known is not None
    samples = [Sample(MOMENT + number * SECOND, Metrics(requests_total=number)) for number in range(5000)]

    registry.report(known, known.record, samples, is_urgent=False)

    assert len(known.samples) == 3000
    assert known.samples[-1] == samples[-1]


@simulated
async def test_a_heartbeat_during_a_flush_is_in_the_next_one() -> None:
    database = MemoryDatabase()
    await database.open()
    store = SlowFlush(database)
    registry = Registry(store)
    await save(store, instance("edge-1"))
    known = await registry.find("edge-1")
    assert known is not None
    report(registry, known, 1)
    flushing = asyncio.create_task(registry.flush())
    await asyncio.sleep(1)
    report(registry, known, 2)
    await flushing

    assert known.is_dirty
    assert await registry.flush() == 1
    assert not known.is_dirty
    assert len(await store.metrics("edge-1", since=MOMENT, limit=9)) == 2


class SlowFlush(MemoryHubStore):
    async def flush(self, heartbeats: object) -> None:
        await asyncio.sleep(2)
        await super().flush(heartbeats)  # type: ignore[arg-type]  # passed on


def report(registry: Registry, known: KnownInstance, seconds: int) -> None:
    time = MOMENT + seconds * SECOND
    life = msgspec.structs.replace(known.life, last_seen=time)
    record = msgspec.structs.replace(known.record, life=life)
    registry.report(known, record, [Sample(time, Metrics())], is_urgent=False)


class Competing:
    """Hubs without agents: registries that follow one log, and writers that change instances."""

    def __init__(self, database: MemoryDatabase, random: Random) -> None:
        self.random = random
        self.stopping = Stopping()
        self.stores = [MemoryHubStore(database) for _ in range(3)]
        self.registries = [Registry(store) for store in self.stores]
        clock, log = SimulatedClock(), get_logger("test")
        self.feeds = [
            EventFeed(store, readers=(registry,), clock=clock, log=log)
            for store, registry in zip(self.stores, self.registries, strict=True)
        ]

    async def write(self, hub: int) -> None:
        """Begin sessions, as Register does, and look at instances as other calls do."""
        store, registry = self.stores[hub], self.registries[hub]
        for _ in range(20):
            await asyncio.sleep(self.random.random())
            instance_id = f"edge-{self.random.randrange(3)}"
            if self.random.random() < 0.5:
                await registry.find(instance_id)
                continue

            def work(transaction: HubTransaction, instance_id: str = instance_id) -> int:
                before = transaction.instance(instance_id)
                session = 1 if before is None else before.life.session + 1
                transaction.save_instance(instance(instance_id, session=session))
                transaction.append_event(HubEventType.INSTANCE_CHANGED, instance_id, b"", MOMENT)
                return session

            session = await store.transact(work)
            known = await registry.refresh(instance_id)
            assert known is not None
            assert known.session >= (1, session), "a hub must know its own change"

    async def run(self) -> None:
        following = [asyncio.create_task(feed.run(self.stopping)) for feed in self.feeds]
        await asyncio.gather(*(self.write(hub) for hub in range(3)))
        await asyncio.sleep(5)
        for store, registry in zip(self.stores, self.registries, strict=True):
            for known in registry:
                stored = await store.instance(known.id)
                assert stored is not None
                assert known.session == session_key(stored.life)
        self.stopping.request()
        await asyncio.gather(*following)


@pytest.mark.parametrize("seed", range(20))
def test_hubs_that_compete_agree_in_the_end(seed: int) -> None:
    async def compete() -> None:
        database = MemoryDatabase()
        await database.open()
        await Competing(database, Random(seed)).run()  # noqa: S311  # reproducible

    loop.run(compete(), order=Random(seed))  # noqa: S311  # reproducible

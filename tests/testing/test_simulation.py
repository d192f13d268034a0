"""Adapters and owners that are made up: each manner, whole histories, the same from the same seed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random

import pytest

from sentinel.drivers.memory import MemoryBroker
from sentinel.ports import Clock
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import Document, FakeFleet, Owner
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.simulation import Manner, SimulatedAdapters, SimulatedOwners, Temper
from tests.contract.publisher import make_event

ALWAYS_PROMPT = Temper(slow=0, failing=0, silent=0)
SECOND = timedelta(seconds=1)


def randomness(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a simulation wants the same numbers again


def adapters(fleet: FakeFleet, clock: Clock, temper: Temper, seed: int = 1) -> SimulatedAdapters:
    return SimulatedAdapters(fleet=fleet, clock=clock, random=randomness(seed), temper=temper)


def existing(fleet: FakeFleet, resource_id: str) -> Document:
    document = fleet.get(resource_id)
    assert document is not None
    return document


@pytest.mark.parametrize(
    ("temper", "manner", "is_ready"),
    [
        (ALWAYS_PROMPT, Manner.PROMPT, True),
        (Temper(slow=1, failing=0, silent=0), Manner.SLOW, True),
        (Temper(slow=0, failing=1, silent=0), Manner.FAILING, False),
    ],
)
def test_an_answer_is_reported_after_the_work(temper: Temper, manner: Manner, is_ready: bool) -> None:
    async def scenario() -> None:
        fleet = FakeFleet()
        fleet.put("cls-1", generation=2)

        answered = await adapters(fleet, SimulatedClock(), temper).answer("cls-1")

        document = existing(fleet, "cls-1")
        assert answered is manner
        assert document.status.observed_generation == 2
        assert document.is_ready is is_ready
        assert document.status.last_updated_time == SimulatedClock().now()
        typical = temper.slow_work if manner is Manner.SLOW else temper.work
        assert 0.5 * typical <= SimulatedClock().now() - START <= 1.5 * typical

    loop.run(scenario())


def test_silence_reports_nothing() -> None:
    async def scenario() -> None:
        fleet = FakeFleet()
        fleet.put("cls-1")

        answered = await adapters(fleet, SimulatedClock(), Temper(slow=0, failing=0, silent=1)).answer("cls-1")

        assert answered is Manner.SILENT
        assert existing(fleet, "cls-1").status.observed_generation == 0

    loop.run(scenario())


def test_a_resource_of_another_fleet_is_nobodys_business() -> None:
    async def scenario() -> None:
        answered = await adapters(FakeFleet(), SimulatedClock(), ALWAYS_PROMPT).answer("np-1")

        assert answered is None
        assert SimulatedClock().now() == START

    loop.run(scenario())


def test_what_was_worked_on_is_what_is_reported() -> None:
    async def scenario() -> None:
        fleet = FakeFleet()
        fleet.put("cls-1")
        answering = asyncio.create_task(adapters(fleet, SimulatedClock(), ALWAYS_PROMPT).answer("cls-1"))
        await asyncio.sleep(0.1)

        fleet.change_spec("cls-1", {"replicas": 5}, at=SimulatedClock().now())
        await answering

        document = existing(fleet, "cls-1")
        assert (document.generation, document.status.observed_generation) == (2, 1)

    loop.run(scenario())


def test_events_are_served_several_at_a_time_and_acked_when_answered() -> None:
    async def scenario() -> None:
        fleet = FakeFleet()
        broker = MemoryBroker()
        subscriber = broker.subscribe("adapters")
        publisher = broker.publisher()
        await publisher.open()
        for number in range(10):
            fleet.put(f"cls-{number}")
        serving = asyncio.create_task(adapters(fleet, SimulatedClock(), ALWAYS_PROMPT).serve(subscriber))

        await publisher.publish([make_event(number) for number in range(10)], deadline=SECOND)
        before = broker.backlog("adapters")
        await asyncio.sleep(2)

        assert before == 10
        assert broker.backlog("adapters") == 0
        assert all(document.is_ready for document in fleet.documents())
        await subscriber.close()
        await serving

    loop.run(scenario())


def test_an_event_that_was_not_answered_is_delivered_again() -> None:
    async def scenario() -> None:
        fleet = FakeFleet()
        fleet.put("cls-1")
        broker = MemoryBroker()
        subscriber = broker.subscribe("adapters")
        publisher = broker.publisher()
        await publisher.open()
        await publisher.publish([make_event(1)], deadline=SECOND)
        serving = asyncio.create_task(adapters(fleet, SimulatedClock(), ALWAYS_PROMPT).serve(subscriber))
        await asyncio.sleep(0.1)

        serving.cancel()
        await asyncio.wait([serving])
        await subscriber.close()

        delivery = await anext(broker.subscribe("adapters").deliveries())
        assert delivery.message.attributes["subject"] == "cls-1"

    loop.run(scenario())


def history(seed: int) -> list[Document]:
    """An hour in the life of two small fleets."""

    async def scenario() -> list[Document]:
        clusters, pools = FakeFleet(), FakeFleet(kind="NodePool")
        for number in range(5):
            clusters.put(f"cls-{number}", labels={"region": "us-east"})
            pools.put(f"np-{number}", owner=Owner(f"cls-{number}", "Cluster"))
        owners = SimulatedOwners(
            fleets=[clusters, pools], clock=SimulatedClock(), random=randomness(seed), pause=2 * SECOND
        )
        living = asyncio.create_task(owners.live())
        await asyncio.sleep(3600)
        living.cancel()
        await asyncio.wait([living])
        return [*clusters.documents(), *pools.documents()]

    return loop.run(scenario())


def test_the_same_seed_is_the_same_history() -> None:
    assert history(seed=1) == history(seed=1)
    assert history(seed=1) != history(seed=2)


@pytest.mark.parametrize("seed", range(5))
def test_owners_change_much_and_keep_the_size_of_a_fleet(seed: int) -> None:
    documents = history(seed)

    assert 4 <= len(documents) <= 20
    assert any(document.generation > 5 for document in documents)
    assert any(document.id.startswith("new-") for document in documents)


@pytest.mark.parametrize("seed", range(5))
def test_what_owners_add_is_labelled_and_owned_like_the_rest(seed: int) -> None:
    documents = history(seed)

    assert all(document.owner is not None for document in documents if document.kind == "NodePool")
    assert all(document.labels for document in documents if document.kind == "Cluster")

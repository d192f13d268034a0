"""Adapters under faults: whatever happens, every resource is reported on in the end, and nothing is lost.

Two replicas of an adapter share a subscription on virtual time. Resources change and disappear, the API fails for
a while or for a single resource, tasks fail and hang, and replicas are killed and replaced. When the faults have
stopped, every event must have been followed by a report on its resource; and when every resource has been asked
for once more, each must have one on its last generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from random import Random

import pytest

from sentinel.adapter import Adapter, Context, Done, Failed, InProgress, Outcome, Resource
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.testing import loop
from tests.support.adapter_harness import AdapterHarness

SEEDS = range(40)
RESOURCES = [f"c{number}" for number in range(8)]
STEPS = 60


class Fleet:
    """A task that misbehaves by chance, and notes whether it was ever run twice at once by one replica."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_calm = False
        self.overlaps = 0

    def adapter(self) -> Adapter:
        """One replica's; each has its own memory, as processes do."""
        adapter = Adapter("dns")
        under_way: set[str] = set()

        @adapter.task(kinds=["Cluster"])
        async def task(cluster: Resource, context: Context) -> Outcome:
            self.overlaps += cluster.id in under_way
            under_way.add(cluster.id)
            try:
                return await self._act()
            finally:
                under_way.discard(cluster.id)

        return adapter

    async def _act(self) -> Outcome:
        if self.is_calm:
            return Done()
        await asyncio.sleep(self.random.expovariate(1))
        match self.random.randrange(6):
            case 0:
                raise RuntimeError("by chance")
            case 1:
                await asyncio.sleep(3600)
            case 2:
                return Failed()
            case 3:
                return InProgress()
        return Done()

    def trouble(self, failing: set[str]) -> ApiUnavailable | None:
        return ApiUnavailable("by chance", needs_operator=self.random.random() < 0.2) if failing else None


class Forgetful:
    """A planted fault: messages are settled when they are handed out, and not when their report is accepted."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.broker_type = subscriber.broker_type
        self.open, self.trouble, self.close = subscriber.open, subscriber.trouble, subscriber.close

    async def deliveries(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscriber.deliveries():
            await delivery.ack()
            yield delivery


async def simulate(
    seed: int, *, around: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber
) -> None:
    random = Random(seed)  # noqa: S311  # chance that repeats itself is the point
    fleet = Fleet(random)

    def replica(peer: AdapterHarness | None = None) -> AdapterHarness:
        return AdapterHarness(
            fleet.adapter(),
            concurrency=3,
            max_in_flight=6,
            task_timeout=timedelta(seconds=10),
            peer=peer,
            around=around,
        )

    origin = replica()
    replicas = [origin, replica(origin)]
    for each in replicas:
        await each.__aenter__()
    alive = {resource_id: origin.api.put(resource_id) for resource_id in RESOURCES}
    failing: set[str] = set()

    def fail(operation: str, resource_id: str) -> ApiUnavailable | None:
        return fleet.trouble(failing & {"everything", resource_id})

    origin.api.fail(fail)
    asked: dict[str, datetime] = {}
    for _ in range(STEPS):
        resource_id = random.choice(RESOURCES)
        match random.randrange(8):
            case 0 | 1 | 2:
                asked[resource_id] = origin.clock.now()
                await origin.pulse(resource_id)
            case 3 if resource_id in alive:
                alive[resource_id] = origin.api.put(resource_id, spec={"changed": random.random()})
            case 4:
                failing ^= {random.choice(["everything", resource_id])}
            case 5:
                victim = random.randrange(len(replicas))
                await replicas[victim].kill()
                replicas[victim] = replica(origin)
                await replicas[victim].__aenter__()
            case 6 if len(alive) > 3 and resource_id in alive:
                origin.api.remove(resource_id)
                del alive[resource_id]
        await asyncio.sleep(random.expovariate(0.5))

    fleet.is_calm = True
    failing.clear()
    await origin.until(lambda: origin.backlog == 0)
    for resource_id in alive.keys() & asked.keys():
        reports = origin.api.reports_on(resource_id)
        assert reports, f"{resource_id} was never reported on"
        # Not the last one sent: an older report may be offered again for as long as the API takes nobody's.
        looked = max(report.observed_time for report in reports)
        assert looked >= asked[resource_id], f"an event for {resource_id} was lost"

    for resource_id in alive:
        await origin.pulse(resource_id)
    await origin.until(lambda: origin.backlog == 0, timeout=timedelta(minutes=10))
    for resource_id, resource in alive.items():
        status = origin.api.status(resource_id, "dns")
        assert status is not None
        assert status.observed_generation == resource.generation
        assert status.status_of("Available") == "True"
    assert fleet.overlaps == 0
    assert await origin.dead_letters() == []
    for each in replicas:
        assert each.seen.crashes == []
        await each.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_faults_every_resource_is_reported_on(seed: int) -> None:
    loop.run(simulate(seed))


def test_an_ack_before_the_report_would_be_found() -> None:
    violations = 0
    for seed in SEEDS:
        try:
            loop.run(simulate(seed, around=Forgetful))
        except AssertionError:
            violations += 1

    assert violations > 5

"""Adapters under faults: every resource is reported on in the end, and no event is lost.

Two replicas of an adapter share a subscription on virtual time. Resources change and disappear, the API fails for
all or for single resources, tasks fail and hang, and replicas are killed and replaced. After the faults every
event must have been followed by a report on its resource. After one more event for each resource, each must have a
report on its last generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

import pytest

from sentinel.adapter import Adapter, Context, Done, Failed, InProgress, Outcome, Resource
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.subscription import Subscriber
from sentinel.testing.loop import run
from tests.sim.planted_faults import AcksTooEarly
from tests.support.adapter_harness import AdapterHarness

SEEDS = range(40)
RESOURCES = [f"c{number}" for number in range(8)]
STEPS = 60


class FaultyTask:
    """A task that fails at random, and counts overlapping evaluations of one resource in one replica."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_faultless = False
        self.overlaps = 0

    def adapter(self) -> Adapter:
        """Declare the adapter of one replica; replicas share no state."""
        adapter = Adapter("dns")
        running: set[str] = set()

        @adapter.task(kinds=["Cluster"])
        async def task(cluster: Resource, context: Context) -> Outcome:
            self.overlaps += cluster.id in running
            running.add(cluster.id)
            try:
                return await self._act()
            finally:
                running.discard(cluster.id)

        return adapter

    async def _act(self) -> Outcome:
        if self.is_faultless:
            return Done()
        await asyncio.sleep(self.random.expovariate(1))
        match self.random.randrange(6):
            case 0:
                raise RuntimeError("simulated")
            case 1:
                await asyncio.sleep(3600)
            case 2:
                return Failed()
            case 3:
                return InProgress()
        return Done()

    def api_error(self, failing: set[str]) -> ApiUnavailable | None:
        return ApiUnavailable("simulated", needs_operator=self.random.random() < 0.2) if failing else None


async def simulate(
    seed: int, *, around: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber
) -> None:
    random = Random(seed)  # noqa: S311  # repeatable randomness is the point
    task = FaultyTask(random)

    def replica(peer: AdapterHarness | None = None) -> AdapterHarness:
        return AdapterHarness(
            task.adapter(),
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
        return task.api_error(failing & {"everything", resource_id})

    origin.api.fail(fail)
    pulsed: dict[str, datetime] = {}
    for _ in range(STEPS):
        resource_id = random.choice(RESOURCES)
        match random.randrange(8):
            case 0 | 1 | 2:
                pulsed[resource_id] = origin.clock.now()
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

    task.is_faultless = True
    failing.clear()
    await origin.until(lambda: origin.backlog == 0)
    for resource_id in alive.keys() & pulsed.keys():
        reports = origin.api.reports_on(resource_id)
        assert reports, f"{resource_id} has no report"
        # Not the last one sent, because an older report may be retried while the API fails.
        newest = max(report.observed_time for report in reports)
        assert newest >= pulsed[resource_id], f"an event for {resource_id} was lost"

    for resource_id in alive:
        await origin.pulse(resource_id)
    await origin.until(lambda: origin.backlog == 0, timeout=timedelta(minutes=10))
    for resource_id, resource in alive.items():
        status = origin.api.status(resource_id, "dns")
        assert status is not None
        assert status.observed_generation == resource.generation
        assert status.status_of("Available") == "True"
    assert task.overlaps == 0
    assert await origin.dead_letters() == []
    for each in replicas:
        assert each.seen.crashes == []
        await each.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_faults_every_resource_is_reported_on(seed: int) -> None:
    run(simulate(seed))


def test_the_simulation_detects_an_ack_before_the_report() -> None:
    violations = 0
    for seed in SEEDS:
        try:
            run(simulate(seed, around=AcksTooEarly))
        except AssertionError:
            violations += 1

    assert violations > 5

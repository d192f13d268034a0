"""The demo's rollouts, against the hub's API: which versions it deploys, to whom, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from sentinel.cli.up.activity import Activity
from sentinel.cli.up.instances import configurations
from sentinel.cli.up.instances.ports import Ports
from sentinel.cli.up.instances.rollout_demo import PAUSE, POLL_INTERVAL, READINESS_ATTEMPTS, RolloutDemo
from sentinel.core.hub import sync
from sentinel.core.hub.rollout_state import ReportedState
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import HubTransaction, InstanceRecord
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import ManualClock
from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.running_rollouts import deployment_id
from tests.support.hub.in_process import USER
from tests.support.hub.store_records import hash_of, instance

PORTS = Ports(8100)
EDGES = ("edge-1", "edge-2")


class Run:
    """A demo whose clock the test drives. It has a clock of its own, because the hub moves by events alone."""

    def __init__(self, hub: ServedHub) -> None:
        self.hub = hub
        self.clock = ManualClock()
        self.activities: list[Activity] = []

    async def advance(self, duration: timedelta = POLL_INTERVAL) -> None:
        await asyncio.wait_for(self.clock.until_asleep(), 60)
        await self.clock.advance(duration)
        await asyncio.wait_for(self.clock.until_asleep(), 60)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.activities]


@asynccontextmanager
async def running(hub: ServedHub, *ids: str) -> AsyncIterator[Run]:
    run, stopping = Run(hub), Stopping()
    demo = RolloutDemo(
        connect=hub.connection, instances=ids, ports=PORTS, on_activity=run.activities.append, clock=run.clock
    )
    task = asyncio.create_task(demo.run(stopping))
    try:
        await asyncio.wait_for(run.clock.until_asleep(), 60)
        yield run
    finally:
        stopping.request()
        await asyncio.wait_for(task, 60)


def in_sync(instance_id: str, config_id: str = "edge") -> InstanceRecord:
    """An instance that runs the first version, which it is assigned."""
    version = VersionName(config_id, 1)
    return instance(instance_id, assigned=version, reported_hash=hash_of(version))


async def run_assigned(hub: ServedHub, instance_id: str) -> None:
    """Let an instance report that it runs what is assigned to it."""

    def work(transaction: HubTransaction) -> None:
        stored = transaction.instance(instance_id)
        assert stored is not None
        assert stored.sync.assignment is not None
        synced = sync.report(stored.sync, stored.sync.assignment.hash, hub.clock.now())
        transaction.save_instance(msgspec.structs.replace(stored, sync=synced))

    await hub.store.transact(work)


async def deployments(hub: ServedHub) -> list[tuple[int, list[str]]]:
    """Return the versions that were deployed, oldest first, and to whom."""
    listed = await hub.read("deployments", "list")
    return [(each["version"], sorted(each["targets"]["ids"])) for each in reversed(listed["items"])]


async def test_a_good_configuration_is_followed_by_a_bad_one() -> None:
    async with ServedHub() as hub:
        await hub.push("edge", configurations.forwarding(PORTS))
        await hub.add(*map(in_sync, EDGES))
        async with running(hub, *EDGES) as run:
            first = await deployments(hub)
            await hub.rollouts.report(deployment_id(1), ReportedState.COMPLETED, "edge-1")
            await run_assigned(hub, "edge-1")
            await hub.rollouts.abort(USER, deployment_id(1))
            await run.advance()
            await run.advance(PAUSE)
            both = await deployments(hub)
            bad = await hub.call("GET", "configs/edge/versions/4")
            texts = run.texts

    assert first == [(2, ["edge-1", "edge-2"])]
    assert both == [*first, (4, ["edge-1", "edge-2"])]
    assert f"127.0.0.1:{PORTS.next_upstream}" in bad.json["content"]
    assert texts == [
        "deploys a good configuration: edge@2",
        "sees edge@2 aborted",
        "deploys a bad configuration, which passes every check: edge@4",
    ]


async def test_versions_are_saved_once_over_all_starts() -> None:
    async with ServedHub() as hub:
        await hub.push("edge", configurations.forwarding(PORTS))
        await hub.add(*map(in_sync, EDGES))
        for _ in range(2):
            async with running(hub, *EDGES):
                pass
        config = await hub.call("GET", "configs/edge")

    assert config.json["latest_version"] == 4


async def test_an_instance_that_a_user_has_taken_is_left_alone() -> None:
    async with ServedHub() as hub:
        await hub.push("edge", configurations.forwarding(PORTS))
        await hub.push("special", configurations.forwarding(PORTS))
        await hub.add(*map(in_sync, EDGES), in_sync("edge-3", "special"))
        async with running(hub, *EDGES, "edge-3") as run:
            at_once = await deployments(hub)
            for _ in range(READINESS_ATTEMPTS):
                await run.advance()
            at_last = await deployments(hub)

    assert at_once == []
    assert at_last == [(2, ["edge-1", "edge-2"])]


async def test_without_a_first_configuration_nothing_is_deployed_or_said() -> None:
    async with ServedHub() as hub, running(hub, *EDGES) as run:
        await run.advance()

        assert run.texts == []
        assert await deployments(hub) == []

"""A hub that dies at any step of a deployment: another one on its database goes on where it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import pytest

from sentinel.core.hub.deployment import Request
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.core.hub.states import State
from sentinel.ports.errors import Unavailable
from sentinel.ports.rollout_store import DeploymentQuery
from sentinel.testing.database import Fault
from sentinel.testing.hub_agent import Behavior, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.deployments import (
    VERSIONS,
    assigned,
    complete,
    create,
    fleet,
    names,
    request,
    rows,
    running,
    status,
    told,
    until,
    until_over,
)
from tests.support.hub.in_process import SECOND, USER, InProcessHub

BEHAVIORS: Mapping[str, Behavior] = {"edge-2": Behavior(fails=["api@2"])}
MAX_STEPS = 60
"""More than the deployment takes."""


class Crash:
    """Ends a hub's connection to its database with a call, before or after that takes effect."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._left: int | None = None
        self.happened = asyncio.Event()

    @property
    def has_happened(self) -> bool:
        return self.happened.is_set()

    def plan(self, calls: int) -> None:
        self._left = calls

    def cancel(self) -> None:
        self._left = None
        self.happened.clear()

    def __call__(self, call: str) -> Fault | None:
        if self.has_happened:
            return Fault.BEFORE_COMMIT
        if call != "transact" or self._left is None:
            return None
        self._left -= 1
        if self._left >= 0:
            return None
        self.happened.set()
        return self._fault


def moved(agent: HubAgent, hub: InProcessHub) -> HubAgent:
    """The same agent, with what is on its disk, connected to another hub."""
    other = hub.agent(agent.instance_id)
    other.running_version, other.running_content = agent.running_version, agent.running_content
    other.deployed, other.unfinished = dict(agent.deployed), dict(agent.unfinished)
    return other


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for one of several things."""
    tasks = [asyncio.create_task(each) for each in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def crash_and_recover(fault: Fault, step: int) -> tuple[bool, Mapping[str, str], list[str], list[str]]:
    """Let a deployment fail on a hub that dies at this step. Returns whether it did, and how the fleet is."""
    crash = Crash(fault)
    backend = backends.memory(faults=crash)
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        agents = await fleet(hub, *names(3))
        crash.plan(step)
        deployment_id = ""
        async with running(agents, BEHAVIORS):
            with suppress(Unavailable):
                deployment_id = await create(hub, request(*names(3)))
                await first_of(until_over(hub, deployment_id), crash.happened.wait())
        has_crashed, clock = crash.has_happened, hub.clock
    crash.cancel()
    async with InProcessHub(backend=backend, clock=clock) as hub:
        again = [moved(agent, hub) for agent in agents]
        async with running(again, BEHAVIORS):
            found = [*await hub.store.active_deployments(), deployment_id]
            if not found[0]:  # it died before it was stored
                found = [await create(hub, request(*names(3)))]
            record = await until_over(hub, found[0])
        assert status(record) == (RolloutState.FAILED, RollbackState.COMPLETED)
        applied = Counter(key for agent in again for key in agent.deployed)
        assert max(applied.values()) <= 2, "a rollback and a deployment each reach two instances"
        return (
            has_crashed,
            await rows(hub, found[0]),
            await assigned(hub, *names(3)),
            [agent.running_version for agent in again],
        )


@pytest.mark.parametrize("fault", [Fault.AFTER_COMMIT, Fault.BEFORE_COMMIT])
async def test_another_hub_goes_on_after_a_crash_at_any_step(fault: Fault) -> None:
    steps = 0
    for step in range(MAX_STEPS):
        has_crashed, states, versions, running_versions = await crash_and_recover(fault, step)

        assert states == {"edge-1": "rolled_back", "edge-2": "rolled_back", "edge-3": "skipped"}, step
        assert versions == ["api@1"] * 3, step
        assert running_versions == ["api@1"] * 3, step
        if not has_crashed:
            break
        steps += 1
    assert 10 < steps < MAX_STEPS


async def create_missing(hub: InProcessHub, *wanted: Request) -> list[str]:
    """Create what was not stored before the crash, one version after the other. Returns all ids, in this order."""
    found = {each.request.version: each.id for each in await hub.store.deployments(DeploymentQuery(limit=10))}
    for asked in wanted:
        if asked.version not in found:
            found[asked.version] = await create(hub, asked)
    return [found[asked.version] for asked in wanted]


async def crash_while_one_waits(fault: Fault, step: int) -> bool:
    """Let a hub die at this step of two deployments of one instance. Returns whether it did."""
    crash = Crash(fault)
    backend = backends.memory(faults=crash)
    wanted = request("edge-1", "edge-2"), request("edge-2", "edge-3", version=3, queue=True)
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        agents = await fleet(hub, *names(3))
        crash.plan(step)
        async with running(agents):
            with suppress(Unavailable):
                ids = await create_missing(hub, *wanted)
                await first_of(until_over(hub, ids[1]), crash.happened.wait())
        has_crashed, clock = crash.has_happened, hub.clock
    crash.cancel()
    async with InProcessHub(backend=backend, clock=clock) as hub:
        again = [moved(agent, hub) for agent in agents]
        async with running(again):
            records = [await until_over(hub, each) for each in await create_missing(hub, *wanted)]

        assert [status(each) for each in records] == [(RolloutState.COMPLETED, RollbackState.NONE)] * 2, step
        assert await assigned(hub, *names(3)) == ["api@2", "api@3", "api@3"], step
        assert [agent.running_version for agent in again] == ["api@2", "api@3", "api@3"], step
    return has_crashed


@pytest.mark.parametrize("fault", [Fault.AFTER_COMMIT, Fault.BEFORE_COMMIT])
async def test_a_deployment_that_waits_starts_after_a_crash_at_any_step(fault: Fault) -> None:
    steps = 0
    while await crash_while_one_waits(fault, steps):
        steps += 1
        assert steps < MAX_STEPS
    assert steps > 10


async def test_what_was_done_before_a_restart_is_not_sent_again() -> None:
    backend = backends.memory()
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        agent, _ = await fleet(hub, *names(2))
        deployment_id = await create(hub, request(*names(2)))
        await complete(agent, deployment_id)
        clock = hub.clock

    async with InProcessHub(backend=backend, clock=clock) as hub:
        first, second = moved(agent, hub), hub.agent("edge-2")
        for each in (first, second):
            await each.register()
        streams = [await each.subscribe() for each in (first, second)]

        assert (await told(streams[1])).deployment_id == deployment_id
        assert not (await first.heartbeat()).actions
        await hub.built.instances.drain(USER, "edge-1", "to see what came before it")
        assert (await streams[0].next()).type == pb.Event.DRAIN


async def test_agents_get_time_to_report_to_a_hub_that_was_away() -> None:
    backend = backends.memory()
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        [agent] = await fleet(hub, "edge-1")
        deployment_id = await create(hub, request("edge-1"))
        clock = hub.clock
    await clock.advance(3_600 * SECOND)

    async with InProcessHub(backend=backend, clock=clock) as hub:
        again = moved(agent, hub)
        await hub.clock.advance(60 * SECOND)
        await again.register()
        await complete(again, deployment_id)

        assert status(await until_over(hub, deployment_id)) == (RolloutState.COMPLETED, RollbackState.NONE)


async def test_agents_get_time_to_report_after_the_database_was_away() -> None:
    outage = Crash(Fault.BEFORE_COMMIT)
    async with InProcessHub(backend=backends.memory(faults=outage)) as hub:
        await hub.save_versions("api", *VERSIONS)
        [agent] = await fleet(hub, "edge-1")
        deployment_id = await create(hub, request("edge-1"))
        await agent.ack_deployment(deployment_id)
        outage.plan(0)
        await hub.clock.advance(hub.settings.deployment_timeout + SECOND)
        was_away = outage.has_happened
        outage.cancel()
        await agent.heartbeat()
        await hub.clock.advance(5 * SECOND)

        await complete(agent, deployment_id)

        assert was_away
        assert status(await until_over(hub, deployment_id)) == (RolloutState.COMPLETED, RollbackState.NONE)


async def test_an_instance_that_went_offline_before_a_hub_died_has_failed() -> None:
    """The hub that finds it offline dies before the deployment learns of it."""
    crash = Crash(Fault.AFTER_COMMIT)
    backend = backends.memory(faults=crash)
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        [agent] = await fleet(hub, "edge-1")
        deployment_id = await create(hub, request("edge-1"))
        await agent.ack_deployment(deployment_id)
        crash.plan(0)
        await hub.clock.advance(hub.settings.offline_threshold + SECOND)
        with suppress(Unavailable):
            await hub.sweep()
        clock = hub.clock
    crash.cancel()

    async with InProcessHub(backend=backend, clock=clock) as hub:
        state = await hub.state("edge-1")
        record = await until(hub, deployment_id, lambda record: record.rollout.state is not RolloutState.RUNNING)

        assert (state, record.rollout.state) == (State.OFFLINE, RolloutState.FAILED)

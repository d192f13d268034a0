"""The agent that tests play: what it does by itself, with each behavior."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sentinel.core.hub.states import State
from sentinel.testing.hub_agent import Behavior, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import SECOND, USER, InProcessHub


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    async with InProcessHub() as running:
        await running.save_versions("api", 'a "1"', 'a "2"')
        yield running


@asynccontextmanager
async def running(hub: InProcessHub, behavior: Behavior) -> AsyncIterator[HubAgent]:
    """An agent that has sent its first heartbeat."""
    agent = hub.agent()
    task = asyncio.create_task(agent.run(behavior))
    await hub.clock.until_asleep(hub.sleeping_loops + 1)
    yield agent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def applied(agent: HubAgent) -> str:
    """Wait until the agent has applied a configuration, and return its version."""
    async with asyncio.timeout(60):
        await agent.changed.wait()
    agent.changed.clear()
    return agent.running_version


async def test_it_applies_what_its_stream_announces(hub: InProcessHub) -> None:
    async with running(hub, Behavior()) as agent:
        await hub.assign("api@1")
        first = await applied(agent)
        await hub.assign("api@2")
        second = await applied(agent)
        await hub.clock.advance(30 * SECOND)

        assert (first, second) == ("api@1", "api@2")
        assert agent.running_content == 'a "2"'


async def test_it_applies_at_once_what_is_assigned_already(hub: InProcessHub) -> None:
    await hub.registered()
    await hub.assign("api@2")

    async with running(hub, Behavior(subscribes=False)) as agent:
        assert agent.running_version == "api@2"

    assert (await hub.instance()).sync.is_in_sync


async def test_it_may_never_apply(hub: InProcessHub) -> None:
    async with running(hub, Behavior(subscribes=False, applies=False)) as agent:
        await hub.assign("api@1")
        await hub.clock.advance(30 * SECOND)
        await hub.clock.until_asleep(hub.sleeping_loops + 1)

        assert agent.running_version == ""
        assert [action.type for action in agent.actions] == [pb.PendingAction.FETCH_CONFIG]


async def test_it_may_report_a_wrong_hash(hub: InProcessHub) -> None:
    async with running(hub, Behavior(subscribes=False, reported_hash="ff" * 32)) as agent:
        await hub.assign("api@1")
        for _ in range(2):
            await hub.clock.advance(30 * SECOND)
            await hub.clock.until_asleep(hub.sleeping_loops + 1)

        assert agent.running_version == "api@1"
        assert not (await hub.instance()).sync.is_in_sync


async def test_it_may_report_another_state(hub: InProcessHub) -> None:
    async with running(hub, Behavior(state=pb.InstanceStatus.UNHEALTHY, message="no upstream")):
        instance = await hub.instance()

    assert instance.life.state is State.DEGRADED
    assert instance.life.message == "no upstream"


@pytest.mark.parametrize("subscribes", [True, False])
async def test_it_deregisters_when_it_is_told_to_drain(hub: InProcessHub, subscribes: bool) -> None:
    async with running(hub, Behavior(subscribes=subscribes)) as agent:
        await hub.built.instances.drain(USER, "edge-1", "")
        await hub.clock.advance(29 * SECOND if subscribes else 30 * SECOND)
        await applied(agent)

    assert agent.is_drained
    assert await hub.state() is State.REMOVED


async def test_it_may_ignore_that_it_should_drain(hub: InProcessHub) -> None:
    async with running(hub, Behavior(drains=False)):
        await hub.built.instances.drain(USER, "edge-1", "")
        await hub.clock.advance(29 * SECOND)

        assert await hub.state() is State.DRAINING


async def test_a_stream_that_it_does_not_read_stays_open(hub: InProcessHub) -> None:
    async with running(hub, Behavior(reads_events=False)) as agent:
        await hub.assign("api@1")
        await hub.clock.advance(30 * SECOND)

        assert await applied(agent) == "api@1"
        assert len(hub.built.subscriptions) == 1

"""How instances leave: silence, draining, deregistration, removal, and what follows it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import pytest

from sentinel.core.hub.states import State
from sentinel.hub.settings import HubSettings
from sentinel.ports.audit import AuditQuery
from sentinel.testing.hub_agent import Behavior
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


async def removed(hub: InProcessHub) -> None:
    """Register an instance, and let it leave on purpose."""
    agent = await hub.registered()
    await hub.assign("api@1")
    await hub.built.instances.drain(USER, "edge-1", "")
    await agent.deregister()
    assert await hub.state() is State.REMOVED


async def test_a_silent_instance_is_offline_after_the_threshold(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.clock.advance(30 * SECOND)
    await agent.heartbeat()

    await hub.clock.advance(89 * SECOND)
    before = await hub.state()
    await hub.clock.advance(2 * SECOND)
    after = await hub.state()

    assert (before, after) == (State.ONLINE, State.OFFLINE)


async def test_heartbeats_that_are_not_stored_yet_count(hub: InProcessHub) -> None:
    agent = await hub.registered()

    for _ in range(5):
        await hub.clock.advance(29 * SECOND)
        await agent.heartbeat()
        await hub.sweep()

    assert await hub.state() is State.ONLINE


async def test_a_hub_that_starts_gives_instances_the_whole_threshold() -> None:
    async with InProcessHub() as earlier:
        await earlier.registered()
    await earlier.clock.advance(timedelta(hours=1))

    async with InProcessHub(backend=earlier.backend, clock=earlier.clock) as hub:
        await hub.clock.advance(94 * SECOND)
        before = await hub.state()
        await hub.clock.advance(2 * SECOND)

        assert (before, await hub.state()) == (State.ONLINE, State.OFFLINE)


async def test_an_offline_instance_returns_with_its_session(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.clock.advance(91 * SECOND)
    assert await hub.state() is State.OFFLINE

    await agent.heartbeat()

    assert await hub.state() is State.ONLINE


async def test_deregister_drains_and_the_deadline_removes(hub: InProcessHub) -> None:
    agent = await hub.registered()

    response = await agent.deregister("rebuilt")

    assert response.acknowledged
    instance = await hub.instance()
    assert instance.life.state is State.DRAINING
    assert instance.life.drain is not None
    assert instance.life.drain.reason == "rebuilt"
    await hub.clock.advance(31 * SECOND)
    assert await hub.state() is State.REMOVED


async def test_who_deregistered_is_not_told_to_drain(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await agent.deregister()

    response = await agent.heartbeat()

    assert not response.actions


async def test_a_drain_is_repeated_until_the_agent_deregisters(hub: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()

    await hub.built.instances.drain(USER, "edge-1", "rack 7 is rebuilt")
    event = await events.next()
    responses = [await agent.heartbeat(), await agent.heartbeat()]
    await agent.deregister()

    assert event.type == pb.Event.DRAIN
    assert event.drain.drain_timeout_seconds == 30
    assert event.drain.reason == "rack 7 is rebuilt"
    for response in responses:
        (action,) = response.actions
        assert action.type == pb.PendingAction.DRAIN
        assert dict(action.params) == {"drain_timeout_seconds": "30"}
    assert await hub.state() is State.REMOVED


async def test_a_drain_that_nobody_answers_ends_with_its_timeout(hub: InProcessHub) -> None:
    await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")

    await hub.clock.advance(29 * SECOND)
    before = await hub.state()
    await hub.clock.advance(2 * SECOND)

    assert (before, await hub.state()) == (State.DRAINING, State.REMOVED)


async def test_a_draining_instance_gets_no_more_configuration(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    await hub.built.instances.drain(USER, "edge-1", "")
    response = await agent.heartbeat()

    assert [action.type for action in response.actions] == [pb.PendingAction.DRAIN]


async def test_register_while_draining_is_refused(hub: InProcessHub) -> None:
    await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")

    async with refused(FAILED_PRECONDITION):
        await hub.agent().register()
    async with refused(PERMISSION_DENIED):
        await hub.agent(token="other-token").register()


async def test_removal_of_a_connected_instance_drains_first(hub: InProcessHub) -> None:
    await hub.registered()

    await hub.built.instances.remove(USER, "edge-1")

    assert await hub.state() is State.DRAINING


async def test_removal_of_an_offline_instance_is_immediate(hub: InProcessHub) -> None:
    await hub.registered()
    await hub.clock.advance(91 * SECOND)
    assert await hub.state() is State.OFFLINE

    await hub.built.instances.remove(USER, "edge-1")

    assert await hub.state() is State.REMOVED


async def test_the_stream_of_a_removed_instance_ends(hub: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()
    await hub.built.instances.drain(USER, "edge-1", "")

    await agent.deregister()

    assert await events.ended() is FAILED_PRECONDITION


async def test_an_instance_that_is_offline_for_too_long_is_removed() -> None:
    settings = HubSettings(remove_after=timedelta(seconds=60))
    async with InProcessHub(settings=settings) as hub:
        await hub.registered()
        await hub.clock.advance(91 * SECOND)
        offline = await hub.state()

        await hub.clock.advance(61 * SECOND)
        draining = await hub.state()
        await hub.clock.advance(31 * SECOND)

        assert (offline, draining, await hub.state()) == (State.OFFLINE, State.DRAINING, State.REMOVED)


async def test_a_removed_id_begins_a_new_life(hub: InProcessHub) -> None:
    await removed(hub)
    await hub.clock.advance(60 * SECOND)

    again = hub.agent(token="other-token")
    registered = await again.register()

    assert (registered.config_version, registered.config_hash) == ("", "")
    instance = await hub.instance()
    assert instance.life.state is State.ONLINE
    assert instance.life.incarnation == 2
    assert instance.life.registered == hub.clock.now()
    assert instance.owner == "token:other"
    assert instance.sync.assignment is None
    async with refused(PERMISSION_DENIED):
        await again.get_config("api@1")
    async with refused(PERMISSION_DENIED):
        await hub.agent().register()


async def test_metrics_of_an_earlier_life_are_not_mixed_in(hub: InProcessHub) -> None:
    agent = await hub.registered()
    agent.metrics = pb.InstanceMetrics(requests_total=1)
    await agent.heartbeat()
    await hub.built.instances.drain(USER, "edge-1", "")
    await agent.deregister()
    await hub.registered()

    await hub.built.flusher.flush()

    assert not await hub.store.metrics("edge-1", since=hub.clock.now() - SECOND, limit=10)
    assert (await hub.instance()).status.metrics is None


async def test_leaving_is_in_the_audit(hub: InProcessHub) -> None:
    agent = await hub.registered()

    await hub.built.instances.drain(USER, "edge-1", "rebuilt")
    await agent.deregister("done")

    entries = await hub.backend.audit.find(AuditQuery(limit=2))
    assert [(each.action, each.actor, each.detail) for each in entries] == [
        ("deregister", "edge-1", "done"),
        ("drain", "anonymous", "rebuilt"),
    ]


@pytest.mark.parametrize("count", [3, 40])
async def test_many_silent_instances_go_offline_in_one_sweep(hub: InProcessHub, count: int) -> None:
    for number in range(count):
        await hub.registered(f"many-{number}")

    await hub.clock.advance(91 * SECOND)
    await hub.sweep()

    assert await hub.store.count_by_state() == {State.OFFLINE: count}


async def test_instances_that_are_gone_are_forgotten(hub: InProcessHub) -> None:
    agent = await hub.registered("edge-1")
    await hub.registered("edge-2")
    events = await agent.subscribe()

    await hub.clock.advance(200 * SECOND)

    assert [known.id for known in hub.built.registry] == ["edge-1"]
    events.cancel()


async def test_a_fake_agent_told_twice_to_drain_leaves_once(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")

    # By a heartbeat and by its stream.
    await asyncio.gather(agent._drain(Behavior()), agent._drain(Behavior()))

    assert agent.is_drained
    assert await hub.state() is State.REMOVED

"""Two hubs on one database: what one changes takes effect at the other at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import grpc
import pytest

from sentinel.core.hub.states import State
from sentinel.testing.database import Fault
from sentinel.testing.hub_agent import HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def other(hub: InProcessHub) -> AsyncIterator[InProcessHub]:
    """A second hub on the database of the first."""
    async with InProcessHub(backend=hub.backend, clock=hub.clock) as running:
        yield running


def at(hub: InProcessHub, agent: HubAgent) -> HubAgent:
    """The same agent, connected to another hub, with its session."""
    moved = hub.agent(agent.instance_id)
    moved.token = agent.token
    return moved


async def test_an_assignment_reaches_a_stream_at_the_other_hub(hub: InProcessHub, other: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()

    await other.assign("api@1")

    assert (await events.next()).config_update.config_version == "api@1"
    assert (await agent.heartbeat()).latest_config_version == "api@1"


async def test_a_drain_reaches_a_stream_at_the_other_hub(hub: InProcessHub, other: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()

    await other.built.instances.drain(USER, "edge-1", "rebuilt")

    assert (await events.next()).drain.reason == "rebuilt"


async def test_register_at_one_hub_ends_the_session_at_the_other(hub: InProcessHub, other: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()

    await other.registered()

    assert await events.ended() is UNAUTHENTICATED
    async with refused(UNAUTHENTICATED):
        await agent.heartbeat()


async def test_a_new_session_is_good_at_a_hub_that_has_not_heard_of_it() -> None:
    faults: dict[str, Fault] = {}
    backend = backends.memory(faults=faults.get)
    async with InProcessHub(backend=backend) as hub, InProcessHub(backend=backend, clock=hub.clock) as other:
        await (await hub.registered()).heartbeat()
        faults["events"] = Fault.BEFORE_COMMIT

        moved = at(hub, await other.registered())

        await moved.heartbeat()
        await moved.subscribe()


@pytest.mark.parametrize(
    "call",
    [
        HubAgent.deregister,
        lambda agent: agent.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED)),
    ],
    ids=["deregister", "heartbeat"],
)
async def test_an_ended_session_changes_nothing_at_a_hub_that_still_knows_it(
    call: Callable[[HubAgent], Awaitable[object]],
) -> None:
    faults: dict[str, Fault] = {}
    backend = backends.memory(faults=faults.get)
    async with InProcessHub(backend=backend) as hub, InProcessHub(backend=backend, clock=hub.clock) as other:
        stolen = await hub.registered()
        faults["events"] = Fault.BEFORE_COMMIT
        await other.registered()

        async with refused(UNAUTHENTICATED):
            await call(stolen)

        assert await other.state() is State.ONLINE


async def test_a_stream_may_be_opened_at_a_hub_that_did_not_begin_the_session(
    hub: InProcessHub, other: InProcessHub
) -> None:
    moved = at(other, await hub.registered())
    events = await moved.subscribe()

    await hub.clock.advance(30 * SECOND)

    assert (await events.next()).type == pb.Event.PING


async def test_an_assignment_before_the_first_stream_at_a_hub_is_not_missed(
    hub: InProcessHub, other: InProcessHub
) -> None:
    agent = await hub.registered()
    await other.assign("api@1")

    events = await at(other, agent).subscribe()

    assert (await events.next()).config_update.config_version == "api@1"


async def test_removal_at_one_hub_ends_the_stream_at_the_other(hub: InProcessHub, other: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()
    await other.built.instances.drain(USER, "edge-1", "")

    await at(other, agent).deregister()

    assert await events.ended() is grpc.StatusCode.FAILED_PRECONDITION


async def test_heartbeats_at_either_hub_keep_an_instance_online(hub: InProcessHub, other: InProcessHub) -> None:
    agent = await hub.registered()
    moved = at(other, agent)

    for _ in range(5):
        await hub.clock.advance(40 * SECOND)
        await moved.heartbeat()
        await hub.clock.advance(40 * SECOND)
        await agent.heartbeat()

    assert await hub.state() is State.ONLINE
    start = await hub.store.newest_event()
    assert not [event for event in await hub.store.events(0, limit=100) if b"offline" in event.data]
    assert start > 0


async def test_what_one_hub_has_heard_is_flushed_before_the_other_judges(
    hub: InProcessHub, other: InProcessHub
) -> None:
    agent = await hub.registered()
    await hub.clock.advance(89 * SECOND)
    await agent.heartbeat()
    await hub.clock.advance(timedelta(seconds=1.5))

    await other.sweep()

    assert await hub.state() is State.ONLINE


async def test_an_instance_of_a_hub_that_died_is_offline_for_the_other(
    hub: InProcessHub, other: InProcessHub
) -> None:
    async with InProcessHub(backend=hub.backend, clock=hub.clock) as dying:
        await dying.registered("edge-9")

    await hub.clock.advance(96 * SECOND)

    assert await hub.state("edge-9") is State.OFFLINE


async def test_both_hubs_sweep_and_each_change_happens_once(hub: InProcessHub, other: InProcessHub) -> None:
    for number in range(10):
        await (hub if number % 2 else other).registered(f"edge-{number}")
    await hub.clock.advance(85 * SECOND)
    start = await hub.store.newest_event()

    await hub.clock.advance(15 * SECOND)
    await asyncio.gather(hub.sweep(), other.sweep())

    events = await hub.store.events(start, limit=100)
    assert sorted(event.subject for event in events) == [f"edge-{number}" for number in range(10)]


async def test_a_status_reported_at_the_other_hub_is_not_overwritten(
    hub: InProcessHub, other: InProcessHub
) -> None:
    agent = await hub.registered()
    moved = at(other, agent)
    await agent.heartbeat(current_config_hash="aa" * 32)
    await hub.clock.advance(SECOND)
    await moved.heartbeat(
        current_config_hash="bb" * 32,
        status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED, message="slow"),
    )

    await other.built.flusher.flush()
    await hub.built.flusher.flush()

    instance = await hub.instance()
    assert instance.sync.reported_hash == "bb" * 32
    assert (instance.life.state, instance.life.message) == (State.DEGRADED, "slow")

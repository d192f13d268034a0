"""The streams of events: what they bring, when they end, and what a slow or absent reader costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from sentinel.core.hub.versions import content_hash
from sentinel.hub.refusals import CallRefused
from sentinel.hub.sessions import AgentCall
from sentinel.hub.settings import HubSettings
from sentinel.hub.subscriptions import ConfigUpdate, DrainNotice, Ping
from sentinel.testing.hub_agent import Behavior, EventStream, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import FLEET_TOKEN, SECOND, USER, InProcessHub, refused

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def agent(hub: InProcessHub) -> HubAgent:
    """The agent of edge-1, which has a session."""
    return await hub.registered()


@pytest.fixture
async def events(agent: HubAgent) -> AsyncIterator[EventStream]:
    """The open stream of edge-1."""
    stream = await agent.subscribe()
    yield stream
    stream.cancel()


async def test_an_assignment_by_hand_reaches_the_stream(hub: InProcessHub, events: EventStream) -> None:
    await hub.assign("api@2")

    event = await events.next()

    assert event.type == pb.Event.CONFIG_UPDATE
    assert event.config_update.config_version == "api@2"
    assert event.config_update.config_hash == content_hash('a "2"')
    assert event.config_update.change_summary == "change 2"
    assert event.timestamp == int(hub.clock.now().timestamp())
    assert event.event_id


async def test_each_assignment_is_one_event(hub: InProcessHub, events: EventStream) -> None:
    seen: list[pb.Event] = []
    for version in ("api@1", "api@2", "api@1"):
        await hub.clock.advance(SECOND)
        await hub.assign(version)
        seen.append(await events.next())

    assert [each.config_update.config_version for each in seen] == ["api@1", "api@2", "api@1"]
    assert len({each.event_id for each in seen}) == 3


async def test_other_changes_of_the_instance_are_no_event(
    hub: InProcessHub, agent: HubAgent, events: EventStream
) -> None:
    await hub.assign("api@1")
    await events.next()

    await agent.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED))
    await hub.built.instances.unassign(USER, "edge-1")
    await hub.assign("api@3")
    event = await events.next()

    assert event.config_update.config_version == "api@3"


async def test_an_idle_stream_is_pinged(hub: InProcessHub, events: EventStream) -> None:
    await hub.clock.advance(30 * SECOND)

    first = await events.next()
    await hub.clock.advance(30 * SECOND)
    second = await events.next()

    assert [first.type, second.type] == [pb.Event.PING, pb.Event.PING]
    assert second.ping.server_time == second.timestamp == first.timestamp + 30


async def test_a_stream_that_was_just_written_to_is_not_pinged(hub: InProcessHub, events: EventStream) -> None:
    await hub.clock.advance(20 * SECOND)
    await hub.assign("api@1")
    await hub.clock.advance(29 * SECOND)
    await hub.assign("api@2")

    assert (await events.next()).type == pb.Event.CONFIG_UPDATE
    assert (await events.next()).type == pb.Event.CONFIG_UPDATE


async def test_each_stream_is_pinged_when_it_was_idle_itself(hub: InProcessHub, events: EventStream) -> None:
    await hub.clock.advance(10 * SECOND)
    other = await (await hub.registered("edge-2")).subscribe()
    await hub.clock.advance(10 * SECOND)
    await hub.assign("api@1", "edge-1")

    await hub.clock.advance(20 * SECOND)

    assert (await other.next()).type == pb.Event.PING
    assert (await events.next()).type == pb.Event.CONFIG_UPDATE
    await hub.clock.advance(10 * SECOND)
    assert (await events.next()).type == pb.Event.PING


async def test_a_second_stream_replaces_the_first(hub: InProcessHub, agent: HubAgent, events: EventStream) -> None:
    second = await agent.subscribe()

    assert await events.ended() is grpc.StatusCode.ABORTED
    await hub.assign("api@1")
    assert (await second.next()).type == pb.Event.CONFIG_UPDATE
    assert len(hub.built.subscriptions) == 1


async def test_a_cancelled_stream_is_forgotten(hub: InProcessHub, agent: HubAgent) -> None:
    for _ in range(50):
        stream = await agent.subscribe()
        stream.cancel()

    last = await agent.subscribe()

    async with asyncio.timeout(60):
        while hub.built.registry.get("edge-1").calls > 1:  # type: ignore[union-attr]  # it is known
            await agent.heartbeat()
    assert len(hub.built.subscriptions) == 1
    last.cancel()


async def test_an_assignment_between_two_streams_is_not_missed(
    hub: InProcessHub, agent: HubAgent, events: EventStream
) -> None:
    events.cancel()
    await hub.assign("api@1")

    again = await agent.subscribe()

    assert (await again.next()).config_update.config_version == "api@1"


async def test_what_a_stream_may_have_lost_is_sent_by_the_next(
    hub: InProcessHub, agent: HubAgent, events: EventStream
) -> None:
    await hub.assign("api@1")
    first = await events.next()
    again = await agent.subscribe()

    second = await again.next()

    assert (second.event_id, second.config_update) == (first.event_id, first.config_update)
    await agent.fetch()
    after_fetching = await agent.subscribe()
    await hub.clock.advance(30 * SECOND)
    assert (await after_fetching.next()).type == pb.Event.PING


@pytest.mark.parametrize("told_by", ["register", "heartbeat", "get_config"])
async def test_what_the_agent_was_told_is_not_repeated(hub: InProcessHub, agent: HubAgent, told_by: str) -> None:
    await hub.assign("api@1")
    await getattr(agent, told_by)()
    stream = await agent.subscribe()

    await hub.clock.advance(30 * SECOND)

    assert (await stream.next()).type == pb.Event.PING


async def test_a_stream_that_opens_while_draining_says_so(hub: InProcessHub, agent: HubAgent) -> None:
    await hub.built.instances.drain(USER, "edge-1", "rebuilt")

    stream = await agent.subscribe()

    assert (await stream.next()).drain.reason == "rebuilt"


async def test_the_stream_of_an_expired_session_ends(brief_hub: InProcessHub) -> None:
    agent = await brief_hub.registered()
    stream = await agent.subscribe()

    await brief_hub.clock.advance(11 * SECOND)

    assert await stream.ended() is UNAUTHENTICATED


async def test_a_stream_goes_on_while_heartbeats_renew_the_session(brief_hub: InProcessHub) -> None:
    await brief_hub.save_versions("api", 'a "1"')
    agent = await brief_hub.registered()
    stream = await agent.subscribe()
    for _ in range(10):
        await brief_hub.clock.advance(4 * SECOND)
        await agent.heartbeat()

    await brief_hub.assign("api@1")

    event = await stream.next_of(pb.Event.CONFIG_UPDATE)
    assert event.config_update.config_version == "api@1"


async def test_streams_end_when_the_hub_stops(hub: InProcessHub) -> None:
    async with InProcessHub(backend=hub.backend, clock=hub.clock) as stopping:
        agent = HubAgent(stopping.address, "edge-1", registration_token=FLEET_TOKEN)
        await agent.register()
        stream = await agent.subscribe()

    async with agent:
        assert await stream.ended() is grpc.StatusCode.UNAVAILABLE


async def test_where_subscribe_never_works_heartbeats_suffice(hub: InProcessHub) -> None:
    agent = hub.agent()
    asleep = len(hub.clock.wake_times)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(agent.run(Behavior(subscribes=False)))
        await hub.clock.until_asleep(asleep + 1)
        await hub.assign("api@2")

        await hub.clock.advance(30 * SECOND)
        await agent.changed.wait()
        fetched = agent.running_version
        agent.changed.clear()
        await hub.built.instances.drain(USER, "edge-1", "")
        await hub.clock.advance(30 * SECOND)
        await agent.changed.wait()
        await hub.clock.advance(30 * SECOND)
        await running

    assert fetched == "api@2"
    assert agent.is_drained


async def test_a_reader_that_takes_nothing_harms_nobody(hub: InProcessHub) -> None:
    await hub.save_versions("large", *(f'a "{number}"' for number in range(1, 101)), summary="x" * 100_000)
    slow, quick = await hub.registered("slow"), await hub.registered("quick")
    unread, read = await slow.subscribe(), await quick.subscribe()

    for number in range(1, 101):
        await hub.assign(f"large@{number}", "slow")
        await slow.heartbeat()
    sent = hub.count("hub_stream_events_total", type="CONFIG_UPDATE")
    await hub.assign("api@1", "quick")

    assert (await read.next()).config_update.config_version == "api@1"
    assert sent < 100
    seen: list[str] = []
    while not seen or seen[-1] != "large@100":
        seen.append((await unread.next()).config_update.config_version)
    assert len(seen) <= sent + 2
    assert seen == sorted(seen, key=lambda name: int(name.partition("@")[2]))


async def test_the_latest_desired_state_wins(hub: InProcessHub, agent: HubAgent) -> None:
    call = AgentCall(instance_id="edge-1", token=agent.token)
    async with hub.built.subscriptions.open(call) as subscription:
        await hub.assign("api@1")
        await hub.assign("api@2")
        second = await subscription.next()
        await hub.assign("api@3")
        await hub.built.instances.drain(USER, "edge-1", "rebuilt")
        last = await subscription.next()
        await hub.clock.advance(60 * SECOND)

        assert isinstance(second, ConfigUpdate)
        assert str(second.assignment.version) == "api@2"
        assert isinstance(last, DrainNotice)
        with pytest.raises(CallRefused, match="removed"):
            await subscription.next()


async def test_an_assignment_that_was_taken_back_is_not_sent(hub: InProcessHub, agent: HubAgent) -> None:
    call = AgentCall(instance_id="edge-1", token=agent.token)
    async with hub.built.subscriptions.open(call) as subscription:
        await hub.assign("api@1")
        await hub.built.instances.unassign(USER, "edge-1")
        await hub.clock.advance(60 * SECOND)

        notice = await subscription.next()

    assert isinstance(notice, Ping)
    assert notice.time == hub.clock.now()


async def test_the_end_of_a_stream_comes_before_what_is_not_sent(hub: InProcessHub, agent: HubAgent) -> None:
    call = AgentCall(instance_id="edge-1", token=agent.token)
    async with hub.built.subscriptions.open(call) as subscription:
        await hub.assign("api@1")
        await hub.registered()

        with pytest.raises(CallRefused, match="session has ended"):
            await subscription.next()


async def test_too_many_streams_are_refused() -> None:
    async with InProcessHub(settings=HubSettings()) as hub:
        hub.built.subscriptions.max_streams = 2
        first, second = await hub.registered("edge-1"), await hub.registered("edge-2")
        third = await hub.registered("edge-3")
        await first.subscribe()
        await second.subscribe()

        async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            await third.subscribe()

        await first.subscribe()

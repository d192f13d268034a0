"""Flow 1 of the protocol, step by step: an agent registers, subscribes, fetches and sends heartbeats."""

from __future__ import annotations

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import content_hash
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import InProcessHub


async def test_an_agent_registers_fetches_and_reports_what_it_runs(hub: InProcessHub) -> None:
    first = await hub.registered("edge-1")
    await first.close()
    await hub.assign("api@2", "edge-1")
    agent = hub.agent("edge-1")

    registered = await agent.register()
    events = await agent.subscribe()
    fetched = await agent.fetch()
    answer = await agent.heartbeat()

    assert registered.config_version == "api@2"
    assert registered.config_hash == content_hash('a "2"')
    assert registered.heartbeat_interval == 30
    assert registered.token_expires_at == int(hub.clock.now().timestamp()) + 3600
    assert (fetched.version, fetched.content, fetched.hash) == ("api@2", 'a "2"', registered.config_hash)
    assert not answer.config_update_available
    assert answer.latest_config_version == "api@2"
    assert not answer.actions
    instance = await hub.instance("edge-1")
    assert instance.life.state is State.ONLINE
    assert instance.sync.is_in_sync
    events.cancel()


async def test_an_assignment_reaches_the_stream(hub: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()

    await hub.assign("api@1")
    event = await events.next()

    assert event.type == pb.Event.CONFIG_UPDATE
    assert event.config_update.config_version == "api@1"
    assert event.config_update.config_hash == content_hash('a "1"')
    assert event.config_update.change_summary == "change 1"

"""An agent and a real hub in one process, over gRPC, on time that the test drives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sentinel.core.hub.states import State
from sentinel.drivers.hub_client.client import GrpcHubClient
from sentinel.drivers.hub_client.credentials import TlsFiles, WatchedTls
from sentinel.drivers.rest.token import BearerToken
from sentinel.hub.grpc.listener import server_options
from sentinel.hub.settings import HubSettings
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import START, ManualClock
from tests.support.agent.harness import AgentHarness
from tests.support.clocks import MonotonicSeconds
from tests.support.hub.in_process import FLEET_TOKEN, USER, InProcessHub
from tests.support.hub.secure import SecureHub
from tests.support.tcp_proxy import TcpProxy

SECOND = timedelta(seconds=1)
INTERVAL = timedelta(seconds=30)
"""Between heartbeats."""


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    async with InProcessHub() as running:
        await running.save_versions("api", 'a "1"', 'a "2"')
        yield running


@pytest.fixture
async def network(hub: InProcessHub) -> AsyncIterator[TcpProxy]:
    """The network between the agent and the hub."""
    async with TcpProxy("127.0.0.1", hub.built.listener.address.port) as proxy:
        yield proxy


def agent_of(hub: InProcessHub, *, address: str = "", token: str = FLEET_TOKEN, **options: Any) -> AgentHarness:
    client = GrpcHubClient(
        address or hub.address,
        "edge-1",
        registration_token=BearerToken(token),
        call_timeout=timedelta(seconds=90),
    )
    return AgentHarness(client, clock=hub.clock, **options)


async def drive(clock: ManualClock, until: Callable[[], bool]) -> None:
    """Let time pass, second by second, with some turns for the network in each, until something is so."""
    async with asyncio.timeout(90):
        while not until():
            await clock.advance(SECOND)
            await asyncio.sleep(0.005)


async def test_an_agent_begins_in_the_order_of_the_protocol(hub: InProcessHub) -> None:
    await hub.registered()
    await hub.assign("api@2")
    async with agent_of(hub).running() as agent:
        await agent.calls.until("heartbeat")

        assert agent.calls.names[:4] == ["register", "subscribe", "config", "heartbeat"]
        assert agent.calls.heartbeats[0].config_version == "api@2"
        instance = await hub.instance()
        assert instance.sync.is_in_sync
        assert instance.life.state is State.ONLINE
        assert instance.sentinel_version == "0.6.20"
        assert agent.connection.problem() is None


async def test_an_assignment_arrives_by_the_stream(hub: InProcessHub) -> None:
    async with agent_of(hub).running() as agent:
        await agent.calls.until("heartbeat")
        await hub.assign("api@1")
        await agent.calls.until("heartbeat", 2)

        assert agent.applier.running.version == "api@1"
        assert (await hub.instance()).sync.is_in_sync


async def test_after_the_network_heals_steps_are_taken_in_order(hub: InProcessHub, network: TcpProxy) -> None:
    async with agent_of(hub, address=f"127.0.0.1:{network.port}").running() as agent:
        await agent.calls.until("heartbeat")
        await network.cut()
        await drive(hub.clock, lambda: agent.calls.attempts["register"] > 3)
        await hub.assign("api@2")
        agent.calls.forget()
        await network.accept()
        await drive(hub.clock, lambda: "subscribe" in agent.calls.names and "heartbeat" in agent.calls.names)

        assert agent.calls.names[:2] == ["register", "config"]
        assert {*agent.calls.names[2:4]} == {"subscribe", "heartbeat"}
        assert agent.applier.running.version == "api@2"
        assert len(agent.logged("hub.unavailable")) == 1


async def test_what_has_not_changed_is_not_fetched_again(hub: InProcessHub, network: TcpProxy) -> None:
    await hub.registered()
    await hub.assign("api@2")
    async with agent_of(hub, address=f"127.0.0.1:{network.port}").running() as agent:
        await agent.calls.until("heartbeat")
        await network.cut()
        await drive(hub.clock, lambda: agent.calls.attempts["register"] > 1)
        agent.calls.forget()
        await network.accept()
        await drive(hub.clock, lambda: "heartbeat" in agent.calls.names)

        assert agent.calls.names[0] == "register"
        assert "config" not in agent.calls.names


async def test_buffered_metrics_are_stored_with_their_times(hub: InProcessHub, network: TcpProxy) -> None:
    async with agent_of(hub, address=f"127.0.0.1:{network.port}").running() as agent:
        agent.proxy.requests = 10
        await agent.calls.until("heartbeat")
        await network.cut()
        taken = []
        for requests in (20, 5, 30):  # the proxy restarts, too
            agent.proxy.requests = requests
            await hub.clock.advance(INTERVAL)
            taken.append((hub.clock.now(), requests))
        await network.accept()
        await drive(hub.clock, lambda: len(agent.calls.heartbeats) > 1)
        await hub.built.flusher.flush()

        stored = await hub.store.metrics("edge-1", since=START, limit=100)
        assert [(each.time, each.metrics.requests_total) for each in stored if each.time in dict(taken)] == taken


async def test_heartbeats_alone_are_enough(hub: InProcessHub) -> None:
    class WithoutStream(GrpcHubClient):
        def subscribe(self) -> Any:
            return self._refusing()

        def _refusing(self) -> Any:
            self._instance_id = "nobody"
            try:
                return super().subscribe()
            finally:
                self._instance_id = "edge-1"

    client = WithoutStream(hub.address, "edge-1", registration_token=BearerToken(FLEET_TOKEN))
    async with AgentHarness(client, clock=hub.clock).running() as agent:
        await agent.calls.until("heartbeat")
        await hub.assign("api@2")
        await drive(hub.clock, lambda: agent.applier.running.version == "api@2")
        await drive(hub.clock, lambda: agent.calls.heartbeats[-1].config_version == "api@2")

        assert (await hub.instance()).sync.is_in_sync


async def test_another_session_of_the_instance_makes_it_register_again(hub: InProcessHub) -> None:
    async with agent_of(hub).running() as agent:
        await agent.calls.until("heartbeat")
        await hub.clock.advance(INTERVAL)
        await agent.calls.until("heartbeat", 2)

        await hub.registered()
        await agent.calls.until("register", 2)

        assert (await hub.instance()).life.session == 3
        assert agent.logged("hub.unavailable") == []


async def test_a_removed_instance_registers_as_a_new_one(hub: InProcessHub, network: TcpProxy) -> None:
    async with agent_of(hub, address=f"127.0.0.1:{network.port}").running() as agent:
        await agent.calls.until("heartbeat")
        await network.cut()
        await hub.clock.advance(5 * INTERVAL)
        await hub.sweep()
        assert await hub.state() is State.OFFLINE
        await hub.built.instances.remove(USER, "edge-1")
        assert await hub.state() is State.REMOVED

        await network.accept()
        await drive(hub.clock, lambda: agent.calls.names.count("register") > 1)
        await drive(hub.clock, lambda: agent.calls.names[-1] in ("heartbeat", "subscribe"))

        assert (await hub.instance()).life.incarnation == 2


async def test_tokens_are_renewed_without_registering_again() -> None:
    settings = HubSettings(session_ttl=timedelta(seconds=10), heartbeat_interval=2 * SECOND)
    async with InProcessHub(settings=settings) as hub, agent_of(hub).running() as agent:
        for count in range(1, 16):
            await agent.calls.until("heartbeat", count)
            await hub.clock.advance(2 * SECOND)

        assert agent.calls.attempts["register"] == 1


async def test_an_agent_outlives_its_connections() -> None:
    hub = InProcessHub()
    brief = timedelta(milliseconds=300)
    hub.built.listener.options = server_options(connection_age=brief, connection_grace=brief)
    async with hub:
        await hub.save_versions("api", 'a "1"')
        async with agent_of(hub).running() as agent:
            await drive(hub.clock, lambda: agent.calls.names.count("subscribe") >= 3)
            await hub.assign("api@1")
            await drive(hub.clock, lambda: agent.applier.running.version == "api@1")

            assert agent.calls.attempts["register"] == 1
            assert agent.logged("hub.unavailable") == []


async def test_a_drained_instance_is_removed(hub: InProcessHub) -> None:
    async with agent_of(hub).running() as agent:
        await agent.calls.until("heartbeat")
        await hub.built.instances.drain(USER, "edge-1", "replaced")
        await agent.calls.until("deregister")

        assert agent.applier.stops == 1
        assert await hub.state() is State.REMOVED


async def test_a_stopped_agent_stays_in_the_fleet_unless_told_otherwise(hub: InProcessHub) -> None:
    async with agent_of(hub).running() as agent:
        await agent.calls.until("heartbeat")
    assert await hub.state() is State.ONLINE

    async with agent_of(hub, deregisters_on_shutdown=True).running() as agent:
        await agent.calls.until("heartbeat")
    assert await hub.state() is State.DRAINING
    assert agent.applier.stops == 0


async def test_a_wrong_token_is_an_error_until_it_is_replaced(hub: InProcessHub, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("wrong")
    client = GrpcHubClient(hub.address, "edge-1", registration_token=BearerToken(file=file))
    async with AgentHarness(client, clock=hub.clock).running() as agent:
        await drive(hub.clock, lambda: agent.calls.attempts["register"] > 2)
        assert len(agent.logged("hub.refused")) == 1
        assert "wrong" not in agent.log.getvalue()

        file.unlink()
        await drive(hub.clock, lambda: len(agent.logged("hub.refused")) > 1)
        assert str(file) in agent.logged("hub.refused")[1]["error"]

        file.write_text(f"{FLEET_TOKEN}\n")
        await drive(hub.clock, lambda: "heartbeat" in agent.calls.names)


class TestCertificates:
    @pytest.fixture
    async def secure(self, tmp_path: Path) -> AsyncIterator[SecureHub]:
        async with SecureHub(tmp_path / "ca") as running:
            yield running

    async def test_a_renewed_certificate_is_used_without_a_restart(self, secure: SecureHub) -> None:
        authority = secure.authority
        authority.issue("edge-1")
        files = TlsFiles(
            ca=authority.folder / "ca.crt",
            certificate=authority.folder / "agents" / "edge-1.crt",
            key=authority.folder / "agents" / "edge-1.key",
        )
        seconds = MonotonicSeconds()
        client = GrpcHubClient(
            secure.address, "edge-1", tls=WatchedTls(files, log=get_logger("agent"), monotonic=seconds)
        )
        async with AgentHarness(client, clock=secure.clock).running() as agent:
            await agent.calls.until("heartbeat")
            authority.revoke("edge-1")
            authority.issue("edge-1")
            secure.read_files()
            seconds.now += 2
            agent.calls.forget()
            await drive(secure.clock, lambda: agent.calls.names.count("heartbeat") > 1)

            assert (await secure.instance()).owner == "certificate:edge-1"

    async def test_a_certificate_without_its_key_changes_nothing(self, secure: SecureHub) -> None:
        authority = secure.authority
        authority.issue("edge-1")
        folder = authority.folder / "agents"
        files = TlsFiles(
            ca=authority.folder / "ca.crt", certificate=folder / "edge-1.crt", key=folder / "edge-1.key"
        )
        seconds = MonotonicSeconds()
        tls = WatchedTls(files, log=get_logger("agent"), monotonic=seconds)
        before = tls.get()

        (folder / "edge-1.crt").write_bytes(authority.issue("edge-2").certificate_pem)
        seconds.now += 2

        assert tls.get() is before

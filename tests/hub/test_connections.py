"""The connections of agents: their age, their end, and other things that gRPC does by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import (  # type: ignore[import-untyped]  # it ships no types
    reflection_pb2,
    reflection_pb2_grpc,
)

from sentinel.hub.grpc.listener import server_options
from sentinel.hub.settings import HubSettings
from sentinel.runtime.listening import ListenError
from sentinel.testing.hub_agent import Behavior
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import InProcessHub

BRIEF = timedelta(milliseconds=300)


class AgingHub(InProcessHub):
    """A hub whose connections end after a moment."""

    def __init__(self, *, grace: timedelta = BRIEF) -> None:
        """Calls that take longer than `grace` are aborted."""
        super().__init__()
        self.built.listener.options = server_options(connection_age=BRIEF, connection_grace=grace)


async def test_an_agent_subscribes_again_when_its_connection_is_old() -> None:
    async with AgingHub() as hub:
        await hub.save_versions("api", 'a "1"')
        agent = hub.agent()
        running = asyncio.create_task(agent.run(Behavior()))
        async with asyncio.timeout(60):
            while hub.count("hub_grpc_calls_total", method="Subscribe", status="OK") < 3:
                assert not running.done(), running
                await asyncio.sleep(0.05)

        await hub.assign("api@1")
        async with asyncio.timeout(60):
            await agent.changed.wait()

        assert agent.running_version == "api@1"
        assert len(hub.built.subscriptions) <= 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_unary_calls_do_not_notice_that_a_connection_ends() -> None:
    async with AgingHub(grace=timedelta(minutes=1)) as hub:
        agent = await hub.registered()
        began = asyncio.get_running_loop().time()

        while asyncio.get_running_loop().time() - began < 5 * BRIEF.total_seconds():
            await agent.heartbeat()

        assert hub.count("hub_grpc_calls_total", method="Heartbeat", status="OK") > 1


async def test_an_address_that_is_taken_is_a_clear_error(hub: InProcessHub) -> None:
    other = InProcessHub(backend=hub.backend, clock=hub.clock)
    other.built.listener.address = hub.built.listener.address

    with pytest.raises(ListenError, match=f"cannot listen on {hub.address}"):
        await other.built.listener.open()


async def test_the_hub_does_not_describe_its_services_to_strangers(hub: InProcessHub) -> None:
    channel = grpc.aio.insecure_channel(hub.address)
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

    call: Any = channel.stream_stream(method)(iter(()), timeout=60)

    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
    await channel.close()


async def test_the_hub_describes_its_services_if_it_is_told_to() -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with (
        InProcessHub(settings=HubSettings(grpc_reflection=True)) as hub,
        grpc.aio.insecure_channel(hub.address) as channel,
    ):
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]), timeout=60)
        response = await call.read()

    names = {service.name for service in response.list_services_response.service}
    assert names >= {"sentinel.hub.v1.FleetService", "grpc.health.v1.Health"}


async def test_an_agent_of_the_future_may_send_fields_that_are_unknown(hub: InProcessHub) -> None:
    agent = await hub.registered()
    request = pb.HeartbeatRequest(instance_id="edge-1", token=agent.token)
    future = pb.HeartbeatRequest.FromString(request.SerializeToString() + b"\xfa\x07\x03new")

    response = await agent.stub.Heartbeat(future)

    assert response.latest_config_version == ""

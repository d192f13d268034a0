"""What the hub refuses because it is too much, too large or not a message at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.hub.grpc.listener import MAX_REQUEST_BYTES, server_options
from sentinel.hub.sessions import MAX_CALLS
from sentinel.testing.hub_agent import HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import InProcessHub, refused

METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["FleetService"].methods]
every_method = pytest.mark.parametrize("method", METHODS)
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class RawClient:
    """Sends bytes to any method."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)

    async def status(self, method: str, data: bytes) -> grpc.StatusCode:
        """Return the status that the hub responds with."""
        path = f"/sentinel.hub.v1.FleetService/{method}"
        open_method: Any = self.channel.unary_stream if method == "Subscribe" else self.channel.unary_unary
        status: grpc.StatusCode = await open_method(path)(data, timeout=60).code()
        return status


@pytest.fixture
async def raw(hub: InProcessHub) -> AsyncIterator[RawClient]:
    client = RawClient(hub.address)
    yield client
    await client.channel.close()


@every_method
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", b"\x0a\x05abc", b"\x0a\x02\xff\xfe", b"\x12"])
async def test_what_is_no_message_is_an_invalid_argument(raw: RawClient, method: str, data: bytes) -> None:
    assert await raw.status(method, data) is grpc.StatusCode.INVALID_ARGUMENT


@every_method
async def test_an_empty_message_is_refused_and_not_an_error_of_ours(raw: RawClient, method: str) -> None:
    assert await raw.status(method, b"") is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_that_is_too_large_is_refused(hub: InProcessHub) -> None:
    agent = await hub.registered()

    async with refused(RESOURCE_EXHAUSTED):
        await agent.heartbeat(current_config_hash="x" * MAX_REQUEST_BYTES)

    await agent.heartbeat()


async def test_a_day_of_buffered_metrics_fits(hub: InProcessHub) -> None:
    agent = await hub.registered()
    metrics = pb.InstanceMetrics(
        requests_total=2**62,
        requests_failed=2**62,
        latency_p50_ms=1.5,
        latency_p99_ms=2.5,
        bytes_sent=2**62,
        bytes_received=2**62,
    )
    end = int(hub.clock.now().timestamp())
    buffered = [pb.BufferedMetrics(timestamp=end - 30 * age, metrics=metrics) for age in range(1, 2880)]

    await agent.heartbeat(buffered=buffered)
    await hub.built.flusher.flush()

    stored = await hub.store.metrics("edge-1", since=hub.clock.now() - timedelta(days=2), limit=5000)
    assert len(stored) == 2879


async def test_one_agent_cannot_use_up_what_all_share(hub: InProcessHub) -> None:
    agent, other = await hub.registered("edge-1"), await hub.registered("edge-2")
    known = hub.built.registry.get("edge-1")
    assert known is not None
    known.calls = MAX_CALLS

    async with refused(RESOURCE_EXHAUSTED):
        await agent.heartbeat()

    await other.heartbeat()
    known.calls = 0


async def test_calls_are_counted_only_while_they_run(hub: InProcessHub) -> None:
    agent = await hub.registered()

    await asyncio.gather(*(agent.heartbeat() for _ in range(20)))
    async with refused(grpc.StatusCode.NOT_FOUND):
        await agent.get_config()

    known = hub.built.registry.get("edge-1")
    assert known is not None
    assert known.calls == 0


async def test_too_many_calls_at_once_are_refused(hub: InProcessHub) -> None:
    hub.built.calls.max_calls = 0

    async with refused(RESOURCE_EXHAUSTED):
        await hub.agent().register()


async def test_a_bug_is_internal_and_its_text_stays_here(
    hub: InProcessHub, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await hub.registered()
    known = hub.built.registry.get("edge-1")
    assert known is not None
    known.record = None  # type: ignore[assignment]  # the bug

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await agent.heartbeat()

    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert raised.value.details() == "the hub has failed"
    assert "call.failed" in [record.getMessage() for record in caplog.records]


def test_options_that_storms_and_keepalive_need_are_set() -> None:
    options = dict(server_options())

    assert options["grpc.server.max_pending_requests"] >= 100_000
    assert options["grpc.server.max_pending_requests_hard_limit"] > options["grpc.server.max_pending_requests"]
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= 10_000
    assert options["grpc.keepalive_permit_without_calls"] == 1
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.keepalive_time_ms"] <= 60_000
    assert options["grpc.max_connection_age_ms"] == 30 * 60 * 1000
    assert options["grpc.max_connection_age_grace_ms"] == 30_000
    assert options["grpc.so_reuseport"] == 0


@given(
    data=st.binary(max_size=200),
    method=st.sampled_from(METHODS),
    token=st.sampled_from(["", "fleet-token", "session"]),
)
def test_random_messages_never_end_with_an_internal_error(data: bytes, method: str, token: str) -> None:
    async def send() -> grpc.StatusCode:
        async with InProcessHub() as hub:
            agent: HubAgent = await hub.registered()
            client = RawClient(hub.address)
            # Fields of a valid call come last, so that they count.
            identity = pb.HeartbeatRequest(
                instance_id="edge-1", token=agent.token if token == "session" else token
            )
            status = await asyncio.wait_for(client.status(method, data + identity.SerializeToString()), timeout=60)
            await client.channel.close()
            return status

    if method != "Subscribe":
        assert asyncio.run(send()) is not grpc.StatusCode.INTERNAL

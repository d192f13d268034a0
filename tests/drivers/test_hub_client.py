"""The hub over gRPC: errors by their kinds, and a hub that is newer than the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from sentinel.core.hub.instance import Health
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.drivers.hub_client.client import GrpcHubClient
from sentinel.drivers.hub_client.credentials import TlsFiles, WatchedTls
from sentinel.ports.errors import Misconfigured
from sentinel.ports.hub_client import (
    AssignmentNotice,
    CallRefused,
    DeploymentNotice,
    DrainNotice,
    FailureReason,
    Heartbeat,
    HubUnavailable,
    InstanceStatus,
    Instruction,
    Ping,
    Registration,
    SessionEnded,
)
from sentinel.runtime.log import get_logger
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from sentinel.wire.hub.v1 import fleet_pb2_grpc
from tools.services.server import free_port

REGISTRATION = Registration(instance_id="edge-1", name="Edge 1")
HEARTBEAT = Heartbeat(status=InstanceStatus(health=Health.HEALTHY))
Status = grpc.StatusCode


class OddHub(fleet_pb2_grpc.FleetServiceServicer):
    """Answers as the test says."""

    def __init__(self) -> None:
        self.status: grpc.StatusCode | None = None
        self.answer = pb.HeartbeatResponse()
        self.registered = pb.RegisterResponse(token="t-1", heartbeat_interval=7)
        self.events: list[pb.Event] = []
        self.heartbeats: list[pb.HeartbeatRequest] = []
        self.is_silent = False

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:  # noqa: N802
        await self._refuse(context)
        return self.registered

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
        await self._refuse(context)
        self.heartbeats.append(request)
        return self.answer

    async def AckDeployment(self, request: Any, context: Any) -> pb.AckDeploymentResponse:  # noqa: N802
        return pb.AckDeploymentResponse(acknowledged=True, instruction="dance")

    async def Subscribe(self, request: Any, context: Any) -> AsyncIterator[pb.Event]:  # noqa: N802
        await self._refuse(context)
        for event in self.events:
            yield event

    async def Deregister(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(Status.UNIMPLEMENTED, "not here")

    GetConfig = GetConfigVersion = ReportDeploymentStatus = Deregister

    async def _refuse(self, context: Any) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.status is not None:
            await context.abort(self.status, "because")


@pytest.fixture
async def hub() -> AsyncIterator[tuple[OddHub, GrpcHubClient]]:
    odd, server = OddHub(), grpc.aio.server()
    fleet_pb2_grpc.add_FleetServiceServicer_to_server(odd, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcHubClient(f"127.0.0.1:{port}", "edge-1")
    yield odd, client
    await client.close()
    await server.stop(None)


@pytest.mark.parametrize(
    ("status", "on_register", "on_heartbeat", "reason"),
    [
        (Status.UNAVAILABLE, HubUnavailable, HubUnavailable, FailureReason.UNAVAILABLE),
        (Status.CANCELLED, HubUnavailable, HubUnavailable, FailureReason.UNAVAILABLE),
        (Status.ABORTED, HubUnavailable, HubUnavailable, FailureReason.UNAVAILABLE),
        (Status.DEADLINE_EXCEEDED, HubUnavailable, HubUnavailable, FailureReason.TIMEOUT),
        (Status.RESOURCE_EXHAUSTED, HubUnavailable, HubUnavailable, FailureReason.BUSY),
        (Status.INTERNAL, HubUnavailable, HubUnavailable, FailureReason.INTERNAL),
        (Status.UNIMPLEMENTED, HubUnavailable, HubUnavailable, FailureReason.INTERNAL),
        (Status.UNAUTHENTICATED, CallRefused, SessionEnded, FailureReason.UNAUTHENTICATED),
        (Status.FAILED_PRECONDITION, CallRefused, SessionEnded, FailureReason.PRECONDITION),
        (Status.PERMISSION_DENIED, CallRefused, CallRefused, FailureReason.DENIED),
        (Status.NOT_FOUND, CallRefused, CallRefused, FailureReason.NOT_FOUND),
        (Status.INVALID_ARGUMENT, CallRefused, CallRefused, FailureReason.INVALID),
    ],
)
async def test_errors_are_of_three_kinds(
    hub: tuple[OddHub, GrpcHubClient],
    status: grpc.StatusCode,
    on_register: type[HubUnavailable | SessionEnded | CallRefused],
    on_heartbeat: type[HubUnavailable | SessionEnded | CallRefused],
    reason: FailureReason,
) -> None:
    odd, client = hub
    odd.status = status

    with pytest.raises(on_register, match="because") as registering:
        await client.register(REGISTRATION)
    with pytest.raises(on_heartbeat, match="because") as beating:
        await client.heartbeat(HEARTBEAT)
    with pytest.raises(on_heartbeat):
        async with client.subscribe():
            pass

    for failure in (registering.value, beating.value):
        assert isinstance(failure, HubUnavailable | SessionEnded | CallRefused)
        assert failure.reason is reason


async def test_a_hub_that_does_not_answer_is_unavailable(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    odd.is_silent = True
    impatient = GrpcHubClient(client.address, "edge-1", call_timeout=timedelta(milliseconds=100))

    with pytest.raises(HubUnavailable) as failure:
        await impatient.register(REGISTRATION)
    with pytest.raises(HubUnavailable):
        async with impatient.subscribe():
            pass

    assert failure.value.reason is FailureReason.TIMEOUT
    await impatient.close()


async def test_a_hub_that_was_away_is_reached_by_the_next_registration() -> None:
    port = free_port()
    client = GrpcHubClient(f"127.0.0.1:{port}", "edge-1")
    for _ in range(4):  # gRPC's own backoff would be seconds by now
        with pytest.raises(HubUnavailable):
            await client.register(REGISTRATION)
    server = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServiceServicer_to_server(OddHub(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()

    session = await client.register(REGISTRATION)

    assert session.heartbeat_interval == timedelta(seconds=7)
    await client.close()
    await server.stop(None)


async def test_a_session_without_an_interval_has_the_usual_one(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    odd.registered = pb.RegisterResponse(token="t-1", token_expires_at=2**62)

    session = await client.register(REGISTRATION)

    assert session.heartbeat_interval == timedelta(seconds=30)
    assert session.expires is None


async def test_a_renewed_token_replaces_the_one_before(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    await client.register(REGISTRATION)
    odd.answer = pb.HeartbeatResponse(token="t-2")
    await client.heartbeat(HEARTBEAT)
    odd.answer = pb.HeartbeatResponse()
    await client.heartbeat(HEARTBEAT)
    await client.heartbeat(HEARTBEAT)

    assert [request.token for request in odd.heartbeats] == ["t-1", "t-2", "t-2"]


async def test_a_heartbeat_carries_everything(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    metrics = Metrics(requests_total=10, requests_failed=1, latency_p50_ms=2.5, bytes_sent=2**70)
    sample = Sample(datetime(2025, 1, 1, tzinfo=UTC), Metrics(requests_total=9))

    await client.heartbeat(
        Heartbeat(
            status=InstanceStatus(
                health=Health.DEGRADED, message="m", uptime=timedelta(minutes=1), active_connections=2**40
            ),
            config_version="api@1",
            config_hash="ab",
            metrics=metrics,
            buffered=(sample,),
        )
    )

    (request,) = odd.heartbeats
    assert request.status == pb.InstanceStatus(
        state=pb.InstanceStatus.DEGRADED, message="m", uptime_seconds=60, active_connections=2**31 - 1
    )
    assert (request.current_config_version, request.current_config_hash) == ("api@1", "ab")
    assert (request.metrics.requests_total, request.metrics.bytes_sent) == (10, 2**63 - 1)
    assert [(each.timestamp, each.metrics.requests_total) for each in request.buffered] == [(1735689600, 9)]


async def test_actions_that_are_unknown_or_incomplete_are_left_out(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    params = {"deployment_id": "dep-1", "config_version": "api@2", "rollback": "true", "deadline": "soon"}
    odd.answer = pb.HeartbeatResponse(
        actions=[
            pb.PendingAction(type=99, action_id="future"),  # type: ignore[arg-type]  # of a newer hub
            pb.PendingAction(type=pb.PendingAction.APPLY_CONFIG, action_id="without a deployment"),
            pb.PendingAction(type=pb.PendingAction.APPLY_CONFIG, action_id="apply", params=params),
            pb.PendingAction(type=pb.PendingAction.DRAIN, params={"drain_timeout_seconds": "30"}),
        ]
    )

    answer = await client.heartbeat(HEARTBEAT)

    assert answer.actions == (
        DeploymentNotice(id="apply", deployment_id="dep-1", is_rollback=True, version="api@2", hash=""),
        DrainNotice(id="", timeout=timedelta(seconds=30)),
    )


async def test_events_that_are_unknown_or_empty_are_left_out(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    odd.events = [
        pb.Event(type=99),  # type: ignore[arg-type]  # of a newer hub
        pb.Event(type=pb.Event.CONFIG_UPDATE),
        pb.Event(type=pb.Event.DEPLOYMENT),
        pb.Event.FromString(pb.Event(event_id="p", type=pb.Event.PING).SerializeToString() + b"\xfa\x07\x03new"),
    ]

    async with client.subscribe() as notices:
        received = [notice async for notice in notices]

    assert received == [Ping("p")]


async def test_events_carry_everything(hub: tuple[OddHub, GrpcHubClient]) -> None:
    odd, client = hub
    deployment = pb.DeploymentEvent(
        deployment_id="dep-1",
        config_version="api@2",
        strategy=pb.CANARY,
        batch_position=1,
        batch_total=3,
        deadline=1735689600,
        rollback=True,
        config_hash="ab",
    )
    update = pb.ConfigUpdateEvent(config_version="api@3", config_hash="cd", change_summary="faster")
    drain = pb.DrainEvent(drain_timeout_seconds=30, reason="old")
    odd.events = [
        pb.Event(event_id="e-1", type=pb.Event.DEPLOYMENT, deployment=deployment),
        pb.Event(event_id="e-2", type=pb.Event.CONFIG_UPDATE, config_update=update),
        pb.Event(event_id="e-3", type=pb.Event.DRAIN, drain=drain),
        pb.Event(event_id="e-4", type=pb.Event.PING, ping=pb.PingEvent(server_time=1735689600)),
    ]

    async with client.subscribe() as notices:
        received = [notice async for notice in notices]

    moment = datetime(2025, 1, 1, tzinfo=UTC)
    assert received == [
        DeploymentNotice(
            id="e-1",
            deployment_id="dep-1",
            is_rollback=True,
            version="api@2",
            hash="ab",
            deadline=moment,
            strategy="CANARY",
            batch_position=1,
            batch_total=3,
        ),
        AssignmentNotice(id="e-2", is_action=False, version="api@3", hash="cd", change_summary="faster"),
        DrainNotice(id="e-3", timeout=timedelta(seconds=30), reason="old"),
        Ping("e-4", moment),
    ]


async def test_an_unknown_instruction_asks_for_nothing(hub: tuple[OddHub, GrpcHubClient]) -> None:
    _, client = hub

    assert await client.acknowledge("dep-1", is_rollback=False, is_accepted=True) is Instruction.NONE


@pytest.mark.parametrize("version", ["", "api", "@1", "api@", "api@x", "api@99999999999"])
async def test_what_is_no_version_is_not_fetched(hub: tuple[OddHub, GrpcHubClient], version: str) -> None:
    _, client = hub

    with pytest.raises(CallRefused):
        await client.config_version(version)


def test_a_file_that_is_no_certificate_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("hello")

    with pytest.raises(Misconfigured, match=r"hub\.tls .*ca\.crt"):
        WatchedTls(TlsFiles(ca=file), log=get_logger("agent"))


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_file_that_cannot_be_read_is_named_with_its_key(tmp_path: Path, name: str) -> None:
    present, missing = tmp_path / "present.pem", tmp_path / "missing.pem"
    present.write_text("hello")
    ca, cert, key = (missing if each == name else present for each in ("ca", "cert", "key"))

    with pytest.raises(Misconfigured, match=rf"^hub\.tls\.{name}: .*missing\.pem: cannot be read"):
        WatchedTls(TlsFiles(ca=ca, certificate=cert, key=key), log=get_logger("agent"))

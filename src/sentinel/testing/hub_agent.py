"""An agent that a test plays, over gRPC, against a real hub.

    async with HubAgent("127.0.0.1:9090", "edge-1", registration_token=token) as agent:
        await agent.register()
        events = await agent.subscribe()
        await agent.fetch()
        response = await agent.heartbeat()

Each call of the protocol is a method, which fills in the instance and the session token. What a test says in
keyword arguments replaces that, so that a wrong id or a stolen token is one argument. `run` plays a whole life by
itself, with the behavior that a test asks for: an agent that never subscribes, that does not read its events, or
that reports a wrong hash.

A refused call raises `grpc.aio.AioRpcError`, whose `code()` says why.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc
import msgspec

from sentinel.ports.clock import Clock
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from sentinel.wire.hub.v1 import fleet_pb2_grpc

CAPABILITIES: Final = ("reload", "drain", "metrics", "secrets")
TIMEOUT: Final = timedelta(seconds=60)
"""The timeout of a call. If a hub does not answer, the test fails and does not hang."""

_RETRYABLE: Final = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)
)
_RETRY_DELAY: Final = timedelta(milliseconds=100)

States = pb.DeploymentStatusRequest
T = TypeVar("T")
_Sleep: TypeAlias = "Callable[[timedelta], Awaitable[None]]"


class Behavior(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent that runs by itself behaves."""

    subscribes: bool = True
    """If not, it learns everything by heartbeats."""
    reads_events: bool = True
    """If not, it subscribes and takes nothing of its stream."""
    applies: bool = True
    """If not, it fetches configurations and goes on with the one that runs."""
    reported_hash: str | None = None
    """What it reports in place of the hash of what runs."""
    state: pb.InstanceStatus.State.ValueType = pb.InstanceStatus.HEALTHY
    message: str = ""
    drains: bool = True
    """Whether it deregisters when it is told to drain."""
    heartbeat_interval: timedelta | None = None
    """In place of the one that the hub asks for."""
    rejects: str = ""
    """Why it accepts no deployment; empty if it does."""
    fails: Collection[str] = ()
    """The versions that it cannot apply: `api@2`."""
    failure: str = "health check failed after 3 attempts"
    """What it reports then."""
    acknowledges: bool = True
    """If not, it reads of deployments and does nothing."""
    reports: bool = True
    """If not, it accepts deployments and says no more."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment wants of an instance."""

    deployment_id: str
    version: str
    """Empty in a request to report."""
    is_rollback: bool

    @property
    def key(self) -> tuple[str, bool]:
        """What tells it from all others."""
        return self.deployment_id, self.is_rollback

    @classmethod
    def of_event(cls, event: pb.Event) -> Self:
        """Read an event of a stream."""
        told = event.deployment
        return cls(deployment_id=told.deployment_id, version=told.config_version, is_rollback=told.rollback)

    @classmethod
    def of_action(cls, action: pb.PendingAction) -> Self:
        """Read what a heartbeat was told."""
        return cls(
            deployment_id=action.params["deployment_id"],
            version=action.params.get("config_version", ""),
            is_rollback=action.params["rollback"] == "true",
        )


class EventStream:
    """The events of an open stream."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[pb.SubscribeRequest, pb.Event]) -> None:
        self._call = call

    async def next(self, *, timeout: timedelta = TIMEOUT) -> pb.Event:
        """Return the next event. Raises `AioRpcError` if the hub ends the stream, `EOFError` if it does so
        normally, and `TimeoutError`."""
        async with asyncio.timeout(timeout.total_seconds()):
            event = await self._call.read()
        if isinstance(event, pb.Event):
            return event
        raise EOFError("the stream has ended")

    async def next_of(self, event_type: pb.Event.EventType.ValueType, *, timeout: timedelta = TIMEOUT) -> pb.Event:
        """Return the next event of this type, and drop those before it."""
        async with asyncio.timeout(timeout.total_seconds()):
            while True:
                event = await self.next(timeout=timeout)
                if event.type == event_type:
                    return event

    async def ended(self, *, timeout: timedelta = TIMEOUT) -> grpc.StatusCode:
        """Wait for the end of the stream, and return its status. Events before it are dropped."""
        async with asyncio.timeout(timeout.total_seconds()):
            # The status comes after the last event, so they have to be read.
            with suppress(grpc.aio.AioRpcError):
                while isinstance(await self._call.read(), pb.Event):
                    pass
            return await self._call.code()

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()


class HubAgent:
    """The agent of one instance."""

    def __init__(
        self,
        address: str,
        instance_id: str,
        *,
        registration_token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        capabilities: Sequence[str] = CAPABILITIES,
        clock: Clock | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """With `credentials` it connects with TLS. `clock` times the heartbeats of `run`."""
        self.instance_id = instance_id
        self.registration_token = registration_token
        self.name = name or f"Instance {instance_id}"
        self.labels = dict(labels or {})
        self.capabilities = tuple(capabilities)
        self.token = ""
        """The token of the session."""
        self.token_expires_at = 0
        self.heartbeat_interval = timedelta(seconds=30)
        self.running_version = ""
        self.running_content: str | None = None
        """The configuration that the proxy runs; None if it has none."""
        self.metrics: pb.InstanceMetrics | None = None
        """What heartbeats report, if anything."""
        self.actions: list[pb.PendingAction] = []
        """What the last heartbeat was told to do."""
        self.changed = asyncio.Event()
        """Set when it has applied a configuration or was told to drain. For tests that wait for that."""
        self.is_drained = False
        self.deployed: dict[tuple[str, bool], tuple[States.DeploymentState.ValueType, str]] = {}
        """How deployments and rollbacks ended here: what was reported."""
        self.unfinished: dict[tuple[str, bool], Wanted] = {}
        """What it has accepted, and not reported the end of. After a restart, it goes on with it."""
        self._active: set[tuple[str, bool]] = set()
        self._leaving = asyncio.Lock()
        self._sleep: _Sleep = _sleep if clock is None else clock.sleep
        # Agents are different machines: each has its own connection.
        own_connection = ("grpc.use_local_subchannel_pool", 1)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=(own_connection, *options))
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=(own_connection, *options))
        self.stub = fleet_pb2_grpc.FleetServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, without a word to the hub."""
        await self._channel.close()

    @property
    def running_hash(self) -> str:
        """The hash of what runs; empty if nothing does."""
        content = self.running_content
        return "" if content is None else hashlib.sha256(content.encode()).hexdigest()

    async def register(self, **fields: Any) -> pb.RegisterResponse:
        """Begin a session, and use its token from now on."""
        request = pb.RegisterRequest(
            **{
                "instance_id": self.instance_id,
                "instance_name": self.name,
                "hostname": f"{self.instance_id}.example",
                "labels": self.labels,
                "capabilities": self.capabilities,
                "registration_token": self.registration_token,
                **fields,
            }
        )
        response = await self.stub.Register(request, timeout=TIMEOUT.total_seconds())
        self.token, self.token_expires_at = response.token, response.token_expires_at
        self.heartbeat_interval = timedelta(seconds=response.heartbeat_interval)
        return response

    async def heartbeat(self, **fields: Any) -> pb.HeartbeatResponse:
        """Report that it is healthy, and what it runs. A renewed token is used from now on."""
        request = pb.HeartbeatRequest(
            **{
                "instance_id": self.instance_id,
                "token": self.token,
                "status": pb.InstanceStatus(state=pb.InstanceStatus.HEALTHY),
                "current_config_version": self.running_version,
                "current_config_hash": self.running_hash,
                "metrics": self.metrics,
                **fields,
            }
        )
        response = await self.stub.Heartbeat(request, timeout=TIMEOUT.total_seconds())
        self.actions = list(response.actions)
        if response.token:
            self.token, self.token_expires_at = response.token, response.token_expires_at
        return response

    async def deregister(self, reason: str = "", **fields: Any) -> pb.DeregisterResponse:
        """Leave the fleet."""
        request = pb.DeregisterRequest(
            **{"instance_id": self.instance_id, "token": self.token, "reason": reason, **fields}
        )
        return await self.stub.Deregister(request, timeout=TIMEOUT.total_seconds())

    async def get_config(self, version: str = "", **fields: Any) -> pb.GetConfigResponse:
        """Fetch what is assigned, or a version that was."""
        request = pb.GetConfigRequest(
            **{"instance_id": self.instance_id, "token": self.token, "version": version, **fields}
        )
        return await self.stub.GetConfig(request, timeout=TIMEOUT.total_seconds())

    async def get_config_version(self, config_id: str, number: int, **fields: Any) -> pb.GetConfigVersionResponse:
        """Fetch a version that is or was assigned."""
        request = pb.GetConfigVersionRequest(
            **{
                "instance_id": self.instance_id,
                "token": self.token,
                "config_id": config_id,
                "version_number": number,
                **fields,
            }
        )
        return await self.stub.GetConfigVersion(request, timeout=TIMEOUT.total_seconds())

    async def ack_deployment(self, deployment_id: str, **fields: Any) -> pb.AckDeploymentResponse:
        """Accept a deployment."""
        request = pb.AckDeploymentRequest(
            **{
                "instance_id": self.instance_id,
                "token": self.token,
                "deployment_id": deployment_id,
                "accepted": True,
                **fields,
            }
        )
        return await self.stub.AckDeployment(request, timeout=TIMEOUT.total_seconds())

    async def report_deployment_status(
        self, deployment_id: str, state: pb.DeploymentStatusRequest.DeploymentState.ValueType, **fields: Any
    ) -> pb.DeploymentStatusResponse:
        """Report how far a deployment is."""
        request = pb.DeploymentStatusRequest(
            **{
                "instance_id": self.instance_id,
                "token": self.token,
                "deployment_id": deployment_id,
                "state": state,
                **fields,
            }
        )
        return await self.stub.ReportDeploymentStatus(request, timeout=TIMEOUT.total_seconds())

    async def subscribe(self, **fields: Any) -> EventStream:
        """Open the stream of events. Returns once the hub has opened it. Raises `AioRpcError` if it refuses."""
        request = pb.SubscribeRequest(**{"instance_id": self.instance_id, "token": self.token, **fields})
        call = self.stub.Subscribe(request)
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            # Ends with a refused call, too.
            await call.initial_metadata()
            if call.done():
                await call.read()
        return EventStream(call)

    async def fetch(self) -> pb.GetConfigResponse:
        """Fetch what is assigned, and run it."""
        response = await self.get_config()
        self.running_version, self.running_content = response.version, response.content
        self.changed.set()
        return response

    async def run(self, behavior: Behavior = Behavior()) -> None:  # noqa: B008  # frozen
        """Register, subscribe, fetch, and send heartbeats until it was drained, or is cancelled.

        A call that fails because the hub is away or has too much to do is repeated. Any other refusal is raised.
        """
        registered = await _retried(self.register)
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._follow(behavior)) if behavior.subscribes else None
            for wanted in [*self.unfinished.values()]:
                await self.deploy(wanted, behavior)
            if registered.config_version:
                await self._update(behavior)
            while not self.is_drained:
                try:
                    await self._send_heartbeat(behavior)
                except grpc.aio.AioRpcError:
                    async with self._leaving:  # its stream may have told it to drain meanwhile
                        if not self.is_drained:
                            raise
                await self._sleep(behavior.heartbeat_interval or self.heartbeat_interval)
            if reader is not None:
                reader.cancel()

    async def deploy(self, wanted: Wanted, behavior: Behavior = Behavior()) -> None:  # noqa: B008  # frozen
        """Do what a deployment wants, and report it. What was done before is reported again."""
        if not behavior.acknowledges or wanted.key in self._active:
            return
        self._active.add(wanted.key)
        try:
            if wanted.key not in self.deployed:
                self.unfinished[wanted.key] = wanted
                await self._ack(wanted, behavior.rejects)
                if behavior.rejects or not behavior.reports:
                    return
                await self._report(wanted, States.IN_PROGRESS)
                self.deployed[wanted.key] = await self._try(wanted, behavior)
            await self._report(wanted, *self.deployed[wanted.key])
            self.unfinished.pop(wanted.key, None)
        finally:
            self._active.discard(wanted.key)

    async def _try(self, wanted: Wanted, behavior: Behavior) -> tuple[States.DeploymentState.ValueType, str]:
        if wanted.version in behavior.fails:
            return States.FAILED, behavior.failure
        fetched = await _retried(lambda: self.get_config(wanted.version))
        await self._report(wanted, States.VALIDATING)
        self.running_version, self.running_content = fetched.version, fetched.content
        self.changed.set()
        return (States.ROLLED_BACK if wanted.is_rollback else States.COMPLETED), ""

    async def _ack(self, wanted: Wanted, rejection: str) -> None:
        fields = {"rollback": wanted.is_rollback, "accepted": not rejection, "rejection_reason": rejection}
        await _retried(lambda: self.ack_deployment(wanted.deployment_id, **fields))

    async def _report(self, wanted: Wanted, state: States.DeploymentState.ValueType, message: str = "") -> None:
        fields = {"rollback": wanted.is_rollback, "message": message}
        await _retried(lambda: self.report_deployment_status(wanted.deployment_id, state, **fields))

    async def _send_heartbeat(self, behavior: Behavior) -> None:
        fields: dict[str, Any] = {"status": pb.InstanceStatus(state=behavior.state, message=behavior.message)}
        if behavior.reported_hash is not None:
            fields["current_config_hash"] = behavior.reported_hash
        response = await _retried(lambda: self.heartbeat(**fields))
        for action in response.actions:
            if action.type == pb.PendingAction.FETCH_CONFIG:
                await self._update(behavior)
            elif action.type in (pb.PendingAction.APPLY_CONFIG, pb.PendingAction.REPORT_STATUS):
                await self.deploy(Wanted.of_action(action), behavior)
            elif action.type == pb.PendingAction.DRAIN:
                await self._drain(behavior)

    async def _follow(self, behavior: Behavior) -> None:
        """Act on events. A stream that has ended is opened again, as long as the session lives."""
        while not self.is_drained:
            events = await _retried(self.subscribe)
            if not behavior.reads_events:
                await asyncio.Event().wait()
            while (event := await _next(events)) is not None:
                if event.type == pb.Event.CONFIG_UPDATE:
                    await self._update(behavior)
                elif event.type == pb.Event.DEPLOYMENT:
                    await self.deploy(Wanted.of_event(event), behavior)
                elif event.type == pb.Event.DRAIN:
                    await self._drain(behavior)

    async def _update(self, behavior: Behavior) -> None:
        await _retried(self.fetch if behavior.applies else self.get_config)

    async def _drain(self, behavior: Behavior) -> None:
        async with self._leaving:  # a heartbeat and an event may say it at the same time
            if behavior.drains and not self.is_drained:
                await _retried(lambda: self.deregister("drained"))
                self.is_drained = True
                self.changed.set()


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _RETRYABLE:
                raise
        await asyncio.sleep(_RETRY_DELAY.total_seconds())


async def _next(events: EventStream) -> pb.Event | None:
    try:
        return await events.next(timeout=timedelta(days=1))
    except (grpc.aio.AioRpcError, EOFError):
        return None


async def _sleep(duration: timedelta) -> None:
    await asyncio.sleep(duration.total_seconds())

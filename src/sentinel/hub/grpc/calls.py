"""The calls of the protocol: reads messages, calls the use cases, and turns refusals into statuses.

Nothing that an agent sends ends a call with INTERNAL, a message that cannot be parsed included. INTERNAL is a bug
of ours; it is logged, and its text stays here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from sentinel.core.hub import versions
from sentinel.core.ids import MAX_ID_LENGTH
from sentinel.hub.agent_reports import clean
from sentinel.hub.agents import Agents
from sentinel.hub.fetching import Fetching
from sentinel.hub.grpc import messages
from sentinel.hub.grpc.event_encoding import EventEncoder
from sentinel.hub.observer import HubObserver
from sentinel.hub.refusals import CallRefused, RefusalReason, exhausted, invalid, unavailable
from sentinel.hub.sessions import AgentCall
from sentinel.hub.subscriptions import Subscriptions
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.peer_certificates import PeerCertificates
from sentinel.wire.hub.v1 import fleet_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["FleetService"].full_name
MAX_CALLS: Final = 10_000
"""At the same time, streams excluded. More than all agents of a large fleet that come back at once, because one
that is refused comes again later; fewer than would take the memory of everybody else."""
CALL_TIMEOUT: Final = timedelta(seconds=20)

_MALFORMED: Final = "the message cannot be parsed"

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Q = TypeVar("Q", bound=Message)
"""A request."""
A = TypeVar("A", bound=Message)
"""A response."""


class FleetCalls:
    """The methods of `FleetService`."""

    def __init__(
        self,
        *,
        agents: Agents,
        fetching: Fetching,
        subscriptions: Subscriptions,
        events: EventEncoder,
        certificates: PeerCertificates | None,
        observer: HubObserver,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._agents = agents
        self._fetching = fetching
        self._subscriptions = subscriptions
        self._events = events
        self._certificates = certificates
        self._observer = observer
        self.max_calls = max_calls
        self.call_timeout = CALL_TIMEOUT
        self._calls = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the table of methods.

        Written by hand, because events are sent as bytes, which many streams share, and because a message that
        cannot be parsed is not our error.
        """
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Register": self._unary("Register", pb.RegisterRequest, self._register),
                "Heartbeat": self._unary("Heartbeat", pb.HeartbeatRequest, self._heartbeat),
                "Deregister": self._unary("Deregister", pb.DeregisterRequest, self._deregister),
                "GetConfig": self._unary("GetConfig", pb.GetConfigRequest, self._get_config),
                "GetConfigVersion": self._unary(
                    "GetConfigVersion", pb.GetConfigVersionRequest, self._get_config_version
                ),
                "AckDeployment": self._unary("AckDeployment", pb.AckDeploymentRequest, self._ack_deployment),
                "ReportDeploymentStatus": self._unary(
                    "ReportDeploymentStatus", pb.DeploymentStatusRequest, self._report_deployment_status
                ),
                "Subscribe": grpc.unary_stream_rpc_method_handler(
                    self._subscribe, request_deserializer=_parser(pb.SubscribeRequest), response_serializer=None
                ),
            },
        )

    async def _register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:
        call = self._call(request.instance_id, request.registration_token, context)
        session = await self._agents.register(call, messages.registration(request))
        return messages.begun(session, self._agents.heartbeat_interval)

    async def _heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        call = self._call(request.instance_id, request.token, context)
        return messages.heartbeat_response(await self._agents.heartbeat(call, messages.heartbeat_report(request)))

    async def _deregister(self, request: pb.DeregisterRequest, context: Context) -> pb.DeregisterResponse:
        await self._agents.deregister(self._call(request.instance_id, request.token, context), request.reason)
        return pb.DeregisterResponse(acknowledged=True)

    async def _get_config(self, request: pb.GetConfigRequest, context: Context) -> pb.GetConfigResponse:
        call = self._call(request.instance_id, request.token, context)
        if not request.version:
            return messages.config(await self._fetching.assigned(call))
        return messages.config(await self._fetching.version(call, versions.parse(request.version)))

    async def _get_config_version(
        self, request: pb.GetConfigVersionRequest, context: Context
    ) -> pb.GetConfigVersionResponse:
        call = self._call(request.instance_id, request.token, context)
        name = versions.parse(f"{request.config_id}@{request.version_number}")
        return messages.config_version(await self._fetching.version(call, name))

    async def _ack_deployment(
        self, request: pb.AckDeploymentRequest, context: Context
    ) -> pb.AckDeploymentResponse:
        call = self._call(request.instance_id, request.token, context)
        instruction = await self._fetching.acknowledge(call, messages.acknowledgement(request))
        return pb.AckDeploymentResponse(acknowledged=True, instruction=instruction)

    async def _report_deployment_status(
        self, request: pb.DeploymentStatusRequest, context: Context
    ) -> pb.DeploymentStatusResponse:
        call = self._call(request.instance_id, request.token, context)
        next_action = await self._fetching.report(call, messages.progress(request))
        return pb.DeploymentStatusResponse(acknowledged=True, next_action=next_action)

    async def _subscribe(self, request: pb.SubscribeRequest | None, context: Context) -> None:
        """Stream events until the stream has to end.

        It writes instead of yielding, so that a cancelled call leaves the block below at once, and it lets the
        cancellation pass: gRPC leaks the call otherwise (grpc/grpc#43360).
        """
        started = time.monotonic()
        is_open = False
        try:
            if request is None:
                raise invalid(_MALFORMED)
            call = self._call(request.instance_id, request.token, context)
            async with self._subscriptions.open(call) as subscription:
                # Tells the agent that it will not miss anything from now on.
                await context.send_initial_metadata(())
                is_open = True
                self._ended("Subscribe", None, started)
                while True:
                    notice = await subscription.next()
                    await context.write(await self._events.encode(notice))
                    self._subscriptions.sent(subscription, notice)
                    self._observer.event_sent(messages.event_type(notice))
        except grpc.aio.BaseError:
            return  # the agent is gone
        except Exception as error:
            refused = self._refused("Subscribe", error)
        if not is_open:
            self._ended("Subscribe", refused, started)
        await self._abort("Subscribe", refused, request, context)

    def _unary(
        self, method: str, request_type: type[Q], handle: Callable[[Q, Context], Awaitable[A]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        async def call(request: Q | None, context: Context) -> A | None:
            started = time.monotonic()
            try:
                if request is None:
                    raise invalid(_MALFORMED)
                response = await self._limited(handle, request, context)
            except Exception as error:
                refused = self._refused(method, error)
            else:
                self._ended(method, None, started)
                return response
            self._ended(method, refused, started)
            await self._abort(method, refused, request, context)
            return None

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=_parser(request_type), response_serializer=_serialize
        )

    async def _limited(self, handle: Callable[[Q, Context], Awaitable[A]], request: Q, context: Context) -> A:
        if self._calls >= self.max_calls:
            raise exhausted(f"expected at most {self.max_calls} calls at the same time")
        self._calls += 1
        try:
            async with asyncio.timeout(self.call_timeout.total_seconds()):
                return await handle(request, context)
        finally:
            self._calls -= 1

    def _call(self, instance_id: str, token: str, context: Context) -> AgentCall:
        certificates = self._certificates
        return AgentCall(
            instance_id=instance_id,
            token=token or _bearer(context),
            certificate=None if certificates is None else certificates.peer(context.auth_context()),
            address=_address(context.peer()),
        )

    def _refused(self, method: str, error: Exception) -> CallRefused:
        match error:
            case CallRefused():
                return error
            case Unavailable() | TimeoutError():
                return unavailable("the database is unavailable")
            case Misconfigured():
                self._observer.call_failed(method, error)
                return unavailable("the hub is misconfigured")
            case _:
                self._observer.call_failed(method, error)
                return CallRefused(RefusalReason.INTERNAL, "the hub has failed")

    async def _abort(self, method: str, refused: CallRefused, request: Message | None, context: Context) -> None:
        instance_id = clean(getattr(request, "instance_id", ""), MAX_ID_LENGTH)
        address = _address(context.peer())
        self._observer.call_refused(method, instance_id, refused.reason, str(refused), address)
        await context.abort(grpc.StatusCode[refused.reason.name], str(refused))

    def _ended(self, method: str, refused: CallRefused | None, started: float) -> None:
        reason = None if refused is None else refused.reason
        self._observer.call_ended(method, reason, timedelta(seconds=time.monotonic() - started))


def _parser(request_type: type[Q]) -> Callable[[bytes], Q | None]:
    """Return None for what cannot be parsed. An exception would be our INTERNAL error."""

    def parse(data: bytes) -> Q | None:
        try:
            return request_type.FromString(data)
        except DecodeError:
            return None

    return parse


def _serialize(response: Message) -> bytes:
    return response.SerializeToString()


def _bearer(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            text = value if isinstance(value, str) else value.decode("latin-1")
            scheme, _, token = text.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def _address(peer: str) -> str:
    """Return the address of `ipv4:10.0.0.1:1234` or `ipv6:%5B::1%5D:1234`."""
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]")

"""Calls the hub.

Every call has a deadline, and its error is translated here, once. The channel belongs to the session: when the hub
could not be reached, Register makes a new one. A channel that has failed would wait by its own backoff before it
connects again, and agents already wait by theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc

from sentinel.drivers.hub_client import messages
from sentinel.drivers.hub_client.credentials import LoadedTls, WatchedTls
from sentinel.ports.errors import Misconfigured
from sentinel.ports.hub_client import (
    CallRefused,
    DeploymentReport,
    FailureReason,
    FetchedConfig,
    Heartbeat,
    HeartbeatResponse,
    HubUnavailable,
    Instruction,
    Notice,
    Registration,
    Session,
    SessionEnded,
)
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from sentinel.wire.hub.v1 import fleet_pb2_grpc

CALL_TIMEOUT: Final = timedelta(seconds=25)
"""Longer than the hub's own timeout for a call."""
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""A configuration of the largest size, with secrets."""
_CLOSE_TIMEOUT: Final = timedelta(seconds=1)

OPTIONS: Final[Sequence[tuple[str, int]]] = (
    # Find a hub that is gone without a word. It permits a ping every ten seconds.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    # A new channel means a new connection, without the backoff and the certificate of the one before.
    ("grpc.use_local_subchannel_pool", 1),
    # Names are resolved again for each connection, not at most every 30 seconds: the hub may have moved.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # The hub is reached directly; the proxies of the environment are for HTTP.
    ("grpc.enable_http_proxy", 0),
)
_UNAVAILABLE: Final = {
    grpc.StatusCode.UNAVAILABLE: FailureReason.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: FailureReason.UNAVAILABLE,  # how a hub that stops ends calls
    grpc.StatusCode.ABORTED: FailureReason.UNAVAILABLE,  # another stream has replaced this one
    grpc.StatusCode.DEADLINE_EXCEEDED: FailureReason.TIMEOUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: FailureReason.BUSY,
}
_REFUSED: Final = {
    grpc.StatusCode.UNAUTHENTICATED: FailureReason.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: FailureReason.DENIED,
    grpc.StatusCode.NOT_FOUND: FailureReason.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION: FailureReason.PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT: FailureReason.INVALID,
}
_SESSION_ENDED: Final = frozenset((FailureReason.UNAUTHENTICATED, FailureReason.PRECONDITION))

Q = TypeVar("Q")
A = TypeVar("A")


class TokenSource(Protocol):
    """Where the registration token comes from."""

    def read(self) -> str:
        """Return the token; empty if there is none. Raises `Misconfigured`."""


class GrpcHubClient:
    """`ports.hub_client.HubClient` of one instance."""

    def __init__(
        self,
        address: str,
        instance_id: str,
        *,
        tls: WatchedTls | None = None,
        registration_token: TokenSource | None = None,
        on_token: Callable[[str], None] = lambda token: None,
        call_timeout: timedelta = CALL_TIMEOUT,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """Without `tls`, the connection is not encrypted. `on_token` gets the token of each session before its
        first use, so that logs can mask it."""
        self.address = address
        self._instance_id = instance_id
        self._tls = tls
        self._registration_token = registration_token
        self._on_token = on_token
        self._call_timeout = call_timeout
        self._options = (*OPTIONS, *options)
        self._channel: grpc.aio.Channel | None = None
        self._opened_with: LoadedTls | None = None
        self._has_failed = False
        self._token = ""
        self._retired: set[asyncio.Task[None]] = set()

    async def register(self, registration: Registration) -> Session:
        token = self._read_registration_token()
        if self._has_failed:
            await self._discard_channel()
        request = messages.register_request(registration, token)
        response = await self._call(lambda stub: stub.Register, request, is_registration=True)
        self._use_token(response.token)
        return messages.session(response)

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        request = messages.heartbeat_request(heartbeat, self._instance_id, self._token)
        response = await self._call(lambda stub: stub.Heartbeat, request)
        # A call that was answered late must not bring back the token of an earlier session.
        if response.token and request.token == self._token:
            self._use_token(response.token)
        return messages.heartbeat_response(response)

    async def deregister(self, reason: str) -> None:
        request = pb.DeregisterRequest(instance_id=self._instance_id, token=self._token, reason=reason)
        await self._call(lambda stub: stub.Deregister, request)

    async def config(self, version: str = "") -> FetchedConfig:
        request = pb.GetConfigRequest(instance_id=self._instance_id, token=self._token, version=version)
        return messages.fetched(await self._call(lambda stub: stub.GetConfig, request))

    async def config_version(self, version: str) -> FetchedConfig:
        config_id, _, number = version.rpartition("@")
        if not config_id or not number.isascii() or not number.isdigit() or int(number) >= 1 << 31:
            raise CallRefused(f'expected a version such as api@7, got "{version}"', FailureReason.INVALID)
        request = pb.GetConfigVersionRequest(
            instance_id=self._instance_id, token=self._token, config_id=config_id, version_number=int(number)
        )
        return messages.fetched_version(await self._call(lambda stub: stub.GetConfigVersion, request))

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[Notice]]:
        request = pb.SubscribeRequest(instance_id=self._instance_id, token=self._token)
        call = self._stub().Subscribe(request)
        try:
            async with self._translating():
                async with asyncio.timeout(self._call_timeout.total_seconds()):
                    # Comes when the hub has added the stream, and with a refusal.
                    await call.initial_metadata()
                if call.done():
                    await call.read()  # raises the refusal
            yield self._notices(call)
        finally:
            call.cancel()

    async def acknowledge(
        self, deployment_id: str, *, is_rollback: bool, is_accepted: bool, rejection_reason: str = ""
    ) -> Instruction:
        request = pb.AckDeploymentRequest(
            instance_id=self._instance_id,
            token=self._token,
            deployment_id=deployment_id,
            accepted=is_accepted,
            rejection_reason=rejection_reason,
            rollback=is_rollback,
        )
        response = await self._call(lambda stub: stub.AckDeployment, request)
        return messages.instruction(response.instruction)

    async def report(self, report: DeploymentReport) -> Instruction:
        request = messages.status_request(report, self._instance_id, self._token)
        response = await self._call(lambda stub: stub.ReportDeploymentStatus, request)
        return messages.instruction(response.next_action)

    async def close(self) -> None:
        await self._discard_channel()
        if self._retired:
            await asyncio.wait(self._retired)

    async def _notices(
        self, call: grpc.aio.UnaryStreamCall[pb.SubscribeRequest, pb.Event]
    ) -> AsyncIterator[Notice]:
        while True:
            async with self._translating(is_stream=True):
                message = await call.read()
            if not isinstance(message, pb.Event):
                return
            notice = messages.event(message)
            if notice is not None:
                yield notice

    async def _call(
        self,
        method: Callable[[fleet_pb2_grpc.FleetServiceAsyncStub], Callable[..., Awaitable[A]]],
        request: Q,
        *,
        is_registration: bool = False,
    ) -> A:
        call = method(self._stub())
        async with self._translating(is_registration=is_registration):
            response = await call(request, timeout=self._call_timeout.total_seconds())
        self._has_failed = False
        return response

    def _stub(self) -> fleet_pb2_grpc.FleetServiceAsyncStub:
        """Return the calls of the present channel. With new certificates, it is a new channel."""
        tls = None if self._tls is None else self._tls.get()
        if self._channel is not None and tls is not self._opened_with:
            self._retire_channel()
        if self._channel is None:
            self._opened_with = tls
            if tls is None:
                self._channel = grpc.aio.insecure_channel(self.address, options=self._options)
            else:
                self._channel = grpc.aio.secure_channel(
                    self.address, tls.channel_credentials(), options=self._options
                )
        return fleet_pb2_grpc.FleetServiceStub(self._channel)

    def _retire_channel(self) -> None:
        """Let the calls of the channel end, and close it then."""
        channel, self._channel = self._channel, None
        if channel is not None:
            closing = asyncio.create_task(channel.close(self._call_timeout.total_seconds()))
            self._retired.add(closing)
            closing.add_done_callback(self._retired.discard)

    async def _discard_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                    await channel.close()
        self._has_failed = False

    def _read_registration_token(self) -> str:
        try:
            return "" if self._registration_token is None else self._registration_token.read()
        except Misconfigured as error:
            raise CallRefused(str(error), FailureReason.MISCONFIGURED) from error

    def _use_token(self, token: str) -> None:
        self._on_token(token)
        self._token = token

    @asynccontextmanager
    async def _translating(self, *, is_registration: bool = False, is_stream: bool = False) -> AsyncIterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            # The end of a stream says nothing about the connection: its age ends it, too.
            self._has_failed = self._has_failed or (
                not is_stream and error.code() not in _REFUSED and error.code() != _BUSY
            )
            _raise(error, is_registration=is_registration)
        except TimeoutError as error:
            self._has_failed = True
            raise HubUnavailable("the hub does not open the stream", FailureReason.TIMEOUT) from error


_BUSY: Final = grpc.StatusCode.RESOURCE_EXHAUSTED


def _raise(error: grpc.aio.AioRpcError, *, is_registration: bool) -> NoReturn:
    details = error.details() or error.code().name
    reason = _REFUSED.get(error.code())
    if reason is None:
        raise HubUnavailable(details, _UNAVAILABLE.get(error.code(), FailureReason.INTERNAL)) from error
    if reason in _SESSION_ENDED and not is_registration:
        raise SessionEnded(details, reason) from error
    raise CallRefused(details, reason) from error

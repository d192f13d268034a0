"""The gRPC server as a part of the lifecycle.

Its options are those that keep a large fleet connected: the default ones drop calls when thousands of agents come
back at the same time, and disconnect agents that look after their connections with pings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, TypeAlias

import grpc
from grpc_health.v1 import (  # type: ignore[import-untyped]  # it ships no types
    health,
    health_pb2,
    health_pb2_grpc,
)
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # it ships no types

from sentinel.hub.grpc.calls import SERVICE, FleetCalls
from sentinel.hub.subscriptions import Subscriptions
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address, ListenError, bind
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import HealthCheck

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""A day of buffered metrics has a fifth of it."""
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""A configuration of the largest size, with secrets."""
CONNECTION_AGE: Final = timedelta(minutes=30)
"""After it, an agent connects again, perhaps to another hub. gRPC varies it by a tenth, so that not all come at
once."""
CONNECTION_GRACE: Final = timedelta(seconds=30)
ServerCredentials: TypeAlias = grpc.ServerCredentials
"""The credentials of a listener, for modules that wire one and do not import gRPC."""
_STOP_TIMEOUT: Final = timedelta(seconds=5)
_HEALTH_INTERVAL: Final = timedelta(seconds=1)


def server_options(
    *, connection_age: timedelta = CONNECTION_AGE, connection_grace: timedelta = CONNECTION_GRACE
) -> Sequence[tuple[str, int]]:
    """Return the options of the server."""
    return (
        # Two processes on one port would each get a part of the calls.
        ("grpc.so_reuseport", 0),
        # When all agents reconnect at once, the defaults cancel calls that wait.
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
        # Agents may ping every ten seconds, also without a call.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Find agents that are gone without a word.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.max_connection_age_ms", connection_age // timedelta(milliseconds=1)),
        ("grpc.max_connection_age_grace_ms", connection_grace // timedelta(milliseconds=1)),
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
    )


class GrpcListener:
    """Serves agents on one address."""

    def __init__(
        self,
        calls: FleetCalls,
        *,
        address: Address,
        credentials: ServerCredentials | None,
        subscriptions: Subscriptions,
        unavailable_reason: HealthCheck,
        clock: Clock,
        log: Log,
        has_reflection: bool = False,
        options: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        """Without `credentials`, it serves without TLS. While there is an `unavailable_reason`, it reports itself
        as not serving, and goes on. With `has_reflection` it describes its services."""
        self.address = address
        """The address; after `open`, with the actual port."""
        self._calls = calls
        self._credentials = credentials
        self._subscriptions = subscriptions
        self._unavailable_reason = unavailable_reason
        self._clock = clock
        self._log = log
        self._has_reflection = has_reflection
        self.options: Sequence[tuple[str, int]] = server_options() if options is None else options
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()

    def part(self, *, name: str = "grpc") -> Part:
        """Return the server as a part of a service."""
        return Part(name=name, loops=(self.run,), start=self.open, close=self.close)

    async def bind(self) -> None:
        """Bind the address, before anything is served. Raises `ListenError`."""
        server = grpc.aio.server(options=self.options)
        server.add_generic_rpc_handlers((self._calls.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._has_reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        target = _target(self.address)
        try:
            if self._credentials is None:
                port = server.add_insecure_port(target)
            else:
                port = server.add_secure_port(target, self._credentials)
        except RuntimeError as error:
            (await bind(self.address)).close()  # gRPC does not say why; the system's own error does
            raise ListenError(f"cannot listen on {self.address}: the address is not available") from error
        self._server = server
        self.address = Address(self.address.host, port)

    async def open(self) -> None:
        """Start to serve. Raises `ListenError` if the address is not bound yet and cannot be."""
        if self._server is None:
            await self.bind()
        server = self._server
        if server is None:
            raise RuntimeError("expected a listener that is not closed while it starts")
        await self._report_health()
        await server.start()
        self._log.info("grpc.listening", address=str(self.address), tls=self._credentials is not None)

    async def run(self, stopping: Stopping) -> None:
        """Serve until stopped. Then end streams, accept no more calls and finish those in progress."""
        while not await stopping.interrupts(self._clock.sleep(_HEALTH_INTERVAL)):
            await self._report_health()
        await self.close()

    async def close(self) -> None:
        """Finish calls within a timeout and abort the rest. Harmless when repeated."""
        server, self._server = self._server, None
        if server is None:
            return
        await self._health.enter_graceful_shutdown()
        self._subscriptions.close()
        await server.stop(_STOP_TIMEOUT.total_seconds())

    async def _report_health(self) -> None:
        is_serving = self._unavailable_reason() is None
        status = (
            health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in ("", SERVICE):
            await self._health.set(service, status)


def _target(address: Address) -> str:
    """Return the address as gRPC writes it. It resolves names itself."""
    if not address.host:
        return f"[::]:{address.port}"
    try:
        is_v6 = ipaddress.ip_address(address.host).version == 6
    except ValueError:
        is_v6 = False
    return f"[{address.host}]:{address.port}" if is_v6 else f"{address.host}:{address.port}"

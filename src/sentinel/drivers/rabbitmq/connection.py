"""The connection to RabbitMQ, shared by publisher, subscriber and dead letters.

aio-pika's plain connection does the handshake, TLS and heartbeats. Its robust connection is not used: it waits
a fixed time between attempts and reports the cause of a failure only in its log. This module also declares what
must exist on the broker, or checks that it is as expected.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Required, TypedDict, TypeVar
from urllib.parse import quote, unquote, urlsplit

from aio_pika.connection import Connection, make_url
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelLockedResource,
    ChannelPreconditionFailed,
    ConnectionCommandInvalid,
    InvalidFrameError,
)
from pamqp.commands import Basic

from sentinel.drivers.rabbitmq.frame_reader import RepairingTransport
from sentinel.drivers.reconnect import ConnectionSupervisor, connection_loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff

HEARTBEAT = timedelta(seconds=10)
RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short delays, so that a broker that is back is found within one poll."""
OPEN_TIMEOUT = timedelta(seconds=3)
"""How long opening waits for the broker before it continues in the background."""

_CONNECT_TIMEOUT = timedelta(seconds=10)
_CLOSE_TIMEOUT = timedelta(seconds=2)

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: discard what is not sent yet."""

T = TypeVar("T")

CALL_ERRORS = (AMQPError, OSError, RuntimeError)
"""Errors of a call inside `connection_loss_as_error`: from the broker, the network, or aiormq (already closed)."""


def amqp_url(*, host: str, port: int, vhost: str, username: str, password: str, tls: bool) -> str:
    """Build a broker URL; every part is quoted."""
    credentials = f"{quote(username, safe='')}:{quote(password, safe='')}"
    address = f"[{host}]" if ":" in host else host
    return f"{'amqps' if tls else 'amqp'}://{credentials}@{address}:{port}/{quote(vhost, safe='')}"


def describe_error(error: BaseException | None) -> str:
    """Return the library's message without class and codes, and without the URL, which holds the password."""
    if error is None:
        return "closed"
    texts = [text for text in error.args if isinstance(text, str) and text]
    if texts:
        return texts[-1]
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


class _ResettableTransport(TransportFactory):
    """A transport of aiormq that remembers its socket, so that the connection can be reset."""

    def __init__(self, inner: TransportFactory) -> None:
        self._inner = inner
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: Any, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._inner.create(url, **kwargs)
        return reader, self._writer

    def reset(self) -> None:
        """End the connection. What has not left this machine is never sent, not even what the kernel holds."""
        if self._writer is not None:
            with suppress(OSError):  # closed already
                plain = self._writer.get_extra_info("socket")
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._writer.transport.abort()


class ExchangeOptions(TypedDict, total=False):
    """The exchange that events go through, and how to connect to its broker."""

    url: Required[str]
    """`amqp://…` or `amqps://…` with the password, as `amqp_url` builds it."""
    exchange: Required[str]
    exchange_type: Required[str]
    routing_key: str
    ca_file: Path | None
    """Verifies the broker with `amqps`. Without it, the system's CAs do."""
    heartbeat: timedelta


class BrokerAddress:
    """The address of a broker and how to connect to it."""

    def __init__(
        self,
        *,
        url: str,
        ca_file: Path | None = None,
        heartbeat: timedelta = HEARTBEAT,
        repair_headers: bool = False,
    ) -> None:
        """`url` holds the password. With `amqps`, `ca_file` verifies the broker, or the system's CAs without one.

        With `repair_headers`, no header of a received message can end the connection.
        """
        address = urlsplit(url)
        self._url = url
        self._is_tls = address.scheme == "amqps"
        self._vhost = unquote(address.path[1:]) or "/"
        self._ca_file = ca_file
        self._heartbeat = heartbeat
        self._repair_headers = repair_headers
        self._host = address.hostname or "localhost"
        self._port = address.port or (5671 if self._is_tls else 5672)
        self._transport: _ResettableTransport | None = None
        """That of the last connection."""
        self.broker = f"{self._host}:{self._port}"
        """Host and port, without credentials."""

    def reset(self) -> None:
        """End the last connection without sending anything more."""
        if self._transport is not None:
            self._transport.reset()

    @asynccontextmanager
    async def connect(self, prepare: Callable[[AbstractConnection], Awaitable[T]]) -> AsyncIterator[T]:
        """Connect for the duration of the context, and yield what `prepare` returns for the connection."""
        ssl_context = await self._ssl_context() if self._is_tls else None
        connection = Connection(
            make_url(self._url, heartbeat=max(1, round(self._heartbeat.total_seconds()))),
            ssl_context=ssl_context,
            client_properties={"connection_name": "hyperfleet-sentinel"},
        )
        transport: TransportFactory = TLSTransportFactory() if self._is_tls else TCPTransportFactory()
        if self._repair_headers:
            transport = RepairingTransport(host=self._host, port=self._port, ssl_context=ssl_context)
        # These arguments go to aiormq unchanged; aio-pika itself has none for the transport.
        connection.kwargs["transport_factory"] = self._transport = _ResettableTransport(transport)
        try:
            with connection_loss_as_error():
                async with asyncio.timeout(_CONNECT_TIMEOUT.total_seconds()):
                    prepared = await prepare(await self._handshake(connection))
            yield prepared
        finally:
            # Errors no longer matter: the connection is not used again.
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                    await connection.close()

    async def _handshake(self, connection: Connection) -> AbstractConnection:
        try:
            await connection.connect()
        except InvalidFrameError as error:
            if "OpenOk" not in str(error):
                raise
            # aiormq reports a refused virtual host only as an unexpected frame.
            raise ConnectionError(
                f"virtual host {self._vhost!r} does not exist, or this user has no access to it"
            ) from error
        if connection.transport is None:
            raise ConnectionError("closed while connecting")
        return connection.transport.connection

    async def _ssl_context(self) -> ssl.SSLContext:
        # Read for every connection, so that a replaced file takes effect, and in a thread, because it is slow.
        try:
            return await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        except OSError as error:
            raise ConnectionError(f"{self._ca_file}: {describe_error(error)}") from error


async def keep_connected(
    hold_connection: Callable[[], Awaitable[None]],
    *,
    supervisor: ConnectionSupervisor,
    backoff: Backoff,
    jitter: Callable[[], float],
) -> None:
    """Reconnect forever; `hold_connection` connects and returns when its connection is lost."""
    now = asyncio.get_running_loop().time
    failures = 0
    while True:
        start = now()
        try:
            await hold_connection()
        except Exception as error:  # the next attempt may succeed
            supervisor.disconnected(describe_error(error))
            supervisor.attempt_failed(error)
        await asyncio.sleep(backoff.delay(failures, jitter()).total_seconds())
        # Only a connection that lasted resets the count. Otherwise one that is always lost immediately would be
        # reopened ten times a second.
        failures = 0 if now() - start > 2 * backoff.maximum.total_seconds() else failures + 1


def set_lost(lost: asyncio.Future[str], reason: str) -> None:
    if not lost.done():
        lost.set_result(reason)


def set_lost_on_close(lost: asyncio.Future[str], channel: AbstractChannel, connection: AbstractConnection) -> None:
    """Resolve `lost` with the reason when the channel or the connection closes."""

    def on_close(closing: asyncio.Future[object]) -> None:
        set_lost(lost, "closed" if closing.cancelled() else describe_error(closing.exception()))

    for closing in (channel.closing, connection.closing):
        closing.add_done_callback(on_close)


async def require_exchange(connection: AbstractConnection, name: str, exchange_type: str) -> None:
    """Declare the exchange or check the existing one; raise `Misconfigured` if neither is possible.

    Reserved names (`amq.…`) are declared like any other: for an existing exchange that only compares it. The
    default exchange, which has no name, always exists.
    """
    if not name:
        return
    expected = f"exchange {name!r}: expected a durable one of type {exchange_type}"
    try:
        await _on_own_channel(
            connection, lambda channel: channel.exchange_declare(name, exchange_type=exchange_type, durable=True)
        )
    except (ChannelPreconditionFailed, ConnectionCommandInvalid) as error:
        raise Misconfigured(f"{expected}; broker error: {describe_error(error)}") from error
    except ChannelAccessRefused as refusal:
        await _require_existing(
            connection, lambda channel: channel.exchange_declare(name, passive=True), expected, refusal
        )


async def require_queue(connection: AbstractConnection, name: str) -> bool:
    """Declare a durable queue or check the existing one. Return whether this user may declare it.

    An administrator's choices for an existing queue, such as its type and limits, are accepted. Only a queue that
    would lose messages raises `Misconfigured`.
    """
    expected = f"queue {name!r}: expected a durable one"
    try:
        await _on_own_channel(connection, lambda channel: channel.queue_declare(name, durable=True))
        return True
    except ChannelPreconditionFailed as error:
        if any(f"'{flaw}'" in describe_error(error) for flaw in ("durable", "auto_delete", "exclusive")):
            raise Misconfigured(f"{expected}; broker error: {describe_error(error)}") from error
        return True
    except ChannelLockedResource as error:
        raise Misconfigured(f"{expected}; broker error: {describe_error(error)}") from error
    except ChannelAccessRefused as refusal:
        await _require_existing(
            connection, lambda channel: channel.queue_declare(name, passive=True), expected, refusal
        )
        return False


async def bind_queue(
    connection: AbstractConnection, *, queue: str, exchange: str, routing_key: str, is_required: bool
) -> None:
    """Bind the queue. If not required, a user who may not bind is trusted to have it bound already.

    Every queue is bound to the default exchange by its own name, and cannot be bound otherwise.
    """
    if not exchange:
        return
    try:
        await _on_own_channel(connection, lambda channel: channel.queue_bind(queue, exchange, routing_key))
    except ChannelAccessRefused as error:
        if is_required:
            problem = f"queue {queue!r} cannot be bound to exchange {exchange!r}"
            raise Misconfigured(f"{problem}; broker error: {describe_error(error)}") from error


async def publish_to_queue(
    connection: AbstractConnection, *, queue: str, body: bytes, properties: Basic.Properties
) -> None:
    """Publish one message directly to a queue, and return when the broker has confirmed it.

    Raises aiormq's `DeliveryError` if the queue does not exist or rejects the message.
    """
    # A channel for each message: this is rare, and a refusal closes the channel.
    channel = await connection.channel(publisher_confirms=True)
    try:
        await channel.basic_publish(body, routing_key=queue, properties=properties, mandatory=True)
    finally:
        await channel.close()


async def _on_own_channel(
    connection: AbstractConnection, call: Callable[[AbstractChannel], Awaitable[object]]
) -> None:
    """Make the call on its own channel, because a refusal closes the channel."""
    channel = await connection.channel(publisher_confirms=False)
    await call(channel)
    await channel.close()


async def _require_existing(
    connection: AbstractConnection,
    declare_passively: Callable[[AbstractChannel], Awaitable[object]],
    expected: str,
    refusal: ChannelAccessRefused,
) -> None:
    try:
        await _on_own_channel(connection, declare_passively)
    except ChannelClosed as error:
        errors = f"{describe_error(error)}; {describe_error(refusal)}"
        raise Misconfigured(f"{expected}; broker error: {errors}") from error

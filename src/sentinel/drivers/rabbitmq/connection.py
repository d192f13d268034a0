"""The connection to RabbitMQ, for those who publish and those who receive.

aio-pika's plain connection does the handshake, TLS and heartbeats. Its robust connection is not used: it always
waits the same time between attempts, and why one failed is only in its log. What has to exist on the broker is
declared here, too, and found to be as expected.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from aio_pika.connection import Connection, make_url
from aiormq.abc import AbstractConnection
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

from sentinel.drivers.rabbitmq.channel import describe
from sentinel.drivers.rabbitmq.frame_reader import Transport
from sentinel.drivers.reconnect import ConnectionSupervisor, loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff

HEARTBEAT = timedelta(seconds=10)
RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short waits: a broker that is back is found within one poll."""
FIRST_ATTEMPT = timedelta(seconds=3)
"""How long opening waits for the broker before it leaves the rest to the background."""

_ATTEMPT = timedelta(seconds=10)
_CLOSING = timedelta(seconds=2)

T = TypeVar("T")

CALL_FAILED = (AMQPError, OSError, RuntimeError)
"""What a call raises, inside `loss_as_error`: what the broker says, what the network says, and aiormq's own word
on something that is closed."""


def amqp_url(*, host: str, port: int, vhost: str, username: str, password: str, tls: bool) -> str:
    """The address of a broker, whatever characters its parts contain."""
    credentials = f"{quote(username, safe='')}:{quote(password, safe='')}"
    place = f"[{host}]" if ":" in host else host
    return f"{'amqps' if tls else 'amqp'}://{credentials}@{place}:{port}/{quote(vhost, safe='')}"


class BrokerAddress:
    """A broker, and how to get there."""

    def __init__(
        self,
        *,
        url: str,
        ca_file: Path | None = None,
        heartbeat: timedelta = HEARTBEAT,
        mends_headers: bool = False,
    ) -> None:
        """`url` holds the password. With `amqps` the broker is verified against `ca_file`, or the system's
        authorities without one. With `mends_headers`, nothing that a publisher puts beside a body can end
        the connection."""
        address = urlsplit(url)
        self._url = url
        self._is_tls = address.scheme == "amqps"
        self._vhost = unquote(address.path[1:]) or "/"
        self._ca_file = ca_file
        self._heartbeat = heartbeat
        self._mends_headers = mends_headers
        self._host = address.hostname or "localhost"
        self._port = address.port or (5671 if self._is_tls else 5672)
        self.broker = f"{self._host}:{self._port}"
        """Where it is, without credentials."""

    @asynccontextmanager
    async def connect(self, prepare: Callable[[AbstractConnection], Awaitable[T]]) -> AsyncIterator[T]:
        """A connection, for as long as the context lasts, and what `prepare` has made of it."""
        trust = await self._trust() if self._is_tls else None
        connection = Connection(
            make_url(self._url, heartbeat=max(1, round(self._heartbeat.total_seconds()))),
            ssl_context=trust,
            client_properties={"connection_name": "hyperfleet-sentinel"},
        )
        if self._mends_headers:
            # These go to aiormq as they are, and this one aio-pika has no argument of its own for.
            connection.kwargs["transport_factory"] = Transport(host=self._host, port=self._port, trust=trust)
        try:
            with loss_as_error():
                async with asyncio.timeout(_ATTEMPT.total_seconds()):
                    prepared = await prepare(await self._shake_hands(connection))
            yield prepared
        finally:
            # Whatever is wrong with it, we are done with it.
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING.total_seconds()):
                    await connection.close()

    async def _shake_hands(self, connection: Connection) -> AbstractConnection:
        try:
            await connection.connect()
        except InvalidFrameError as error:
            if "OpenOk" not in str(error):
                raise
            # All that aiormq tells of a refused virtual host is that it expected another frame.
            raise ConnectionError(f"virtual host {self._vhost!r} is unknown, or closed to this user") from error
        if connection.transport is None:
            raise ConnectionError("closed while connecting")
        return connection.transport.connection

    async def _trust(self) -> ssl.SSLContext:
        # Read for every connection, so that a replaced file is heeded, and in a thread, because it is slow.
        try:
            return await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        except OSError as error:
            raise ConnectionError(f"{self._ca_file}: {describe(error)}") from error


async def keep(
    hold: Callable[[], Awaitable[None]],
    *,
    keeper: ConnectionSupervisor,
    backoff: Backoff,
    random: Callable[[], float],
) -> None:
    """Holds one connection after another for ever; `hold` returns when its own is lost."""
    now = asyncio.get_running_loop().time
    failures = 0
    while True:
        begun = now()
        try:
            await hold()
        except Exception as error:  # the loop's edge: whatever it was, the next attempt may be luckier
            keeper.failed(error)
            keeper.disconnected(describe(error))
            keeper.ring()
        await asyncio.sleep(backoff.delay(failures, random()).total_seconds())
        # Only a connection that lasted starts the count again: one that is lost as soon as it is made
        # must not be made ten times a second.
        failures = 0 if now() - begun > 2 * backoff.maximum.total_seconds() else failures + 1


async def require_exchange(wire: AbstractConnection, name: str, kind: str) -> None:
    """Declares the exchange or finds it as expected; raises `Misconfigured` if it can be neither.

    On channels of their own, because a refusal closes the channel. Reserved names (`amq.…`) are declared like
    any other: where such an exchange exists, that only compares it. The default exchange, which has no name, is
    always there.
    """
    if not name:
        return
    expected = f"exchange {name!r}: expected a durable one of type {kind}"
    try:
        declaring = await wire.channel(publisher_confirms=False)
        await declaring.exchange_declare(name, exchange_type=kind, durable=True)
        await declaring.close()
    except (ChannelPreconditionFailed, ConnectionCommandInvalid) as error:
        raise Misconfigured(f"{expected}; the broker says: {describe(error)}") from error
    except ChannelAccessRefused as refusal:
        try:
            looking = await wire.channel(publisher_confirms=False)
            await looking.exchange_declare(name, passive=True)
            await looking.close()
        except ChannelClosed as error:
            says = f"{describe(error)}; {describe(refusal)}"
            raise Misconfigured(f"{expected}; the broker says: {says}") from error


async def require_queue(wire: AbstractConnection, name: str) -> bool:
    """Declares a durable queue, or finds one; false where it is there and this user may not declare it.

    What an administrator chose for a queue that exists - its type, its limits - is as good as what we would
    have: only one that would lose its messages is refused, by `Misconfigured`.
    """
    expected = f"queue {name!r}: expected a durable one"
    try:
        declaring = await wire.channel(publisher_confirms=False)
        await declaring.queue_declare(name, durable=True)
        await declaring.close()
        return True
    except ChannelPreconditionFailed as error:
        if any(f"'{flaw}'" in describe(error) for flaw in ("durable", "auto_delete", "exclusive")):
            raise Misconfigured(f"{expected}; the broker says: {describe(error)}") from error
        return True
    except ChannelLockedResource as error:
        raise Misconfigured(f"{expected}; the broker says: {describe(error)}") from error
    except ChannelAccessRefused as refusal:
        try:
            looking = await wire.channel(publisher_confirms=False)
            await looking.queue_declare(name, passive=True)
            await looking.close()
            return False
        except ChannelClosed as error:
            says = f"{describe(error)}; {describe(refusal)}"
            raise Misconfigured(f"{expected}; the broker says: {says}") from error


async def bind(
    wire: AbstractConnection, *, queue: str, exchange: str, routing_key: str, is_required: bool
) -> None:
    """Binds the queue; where it is not required, a user who may not bind is trusted to find it bound.

    To the default exchange every queue is bound by its own name, and cannot be otherwise.
    """
    if not exchange:
        return
    try:
        binding = await wire.channel(publisher_confirms=False)
        await binding.queue_bind(queue, exchange, routing_key)
        await binding.close()
    except ChannelAccessRefused as error:
        if is_required:
            says = f"queue {queue!r} cannot be bound to exchange {exchange!r}; the broker says: {describe(error)}"
            raise Misconfigured(says) from error


async def put(wire: AbstractConnection, *, queue: str, body: bytes, properties: Basic.Properties) -> None:
    """Publishes a message to one queue, past all exchanges, and returns when the broker has confirmed it.

    Raises aiormq's `DeliveryError` where the queue does not exist or does not take it.
    """
    # A channel for each: this is rare, and a refusal closes the channel.
    channel = await wire.channel(publisher_confirms=True)
    try:
        await channel.basic_publish(body, routing_key=queue, properties=properties, mandatory=True)
    finally:
        await channel.close()

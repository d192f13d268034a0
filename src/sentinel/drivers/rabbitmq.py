"""Publishing to RabbitMQ, confirmed.

One connection is kept for as long as the publisher is open. It is made in the background, and made again with
backoff when it cannot be had or is lost; what goes over it is the business of `amqp_channel`. aio-pika's
plain connection does the handshake, TLS and heartbeats. Its robust connection is not used: it always waits the
same time between attempts, and why one failed is only in its log.
"""

from __future__ import annotations

import asyncio
import random as system_random
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from aio_pika.connection import Connection, make_url
from aiormq.abc import AbstractConnection
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelClosed,
    ChannelPreconditionFailed,
    ConnectionCommandInvalid,
    InvalidFrameError,
)

from sentinel import ports
from sentinel.core.events import Event, Mode
from sentinel.drivers.amqp_channel import ConfirmingChannel, describe
from sentinel.drivers.amqp_confirms import Batch
from sentinel.drivers.keeper import Keeper
from sentinel.runtime.backoff import Backoff

WINDOW = 1000
HEARTBEAT = timedelta(seconds=10)
RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short waits: a broker that is back is found within one poll."""

_FIRST_ATTEMPT = timedelta(seconds=3)
"""How long opening waits for the broker before it leaves the rest to the background."""
_ATTEMPT = timedelta(seconds=10)
_CLOSING = timedelta(seconds=2)


def amqp_url(*, host: str, port: int, vhost: str, username: str, password: str, tls: bool) -> str:
    """The address of a broker, whatever characters its parts contain."""
    credentials = f"{quote(username, safe='')}:{quote(password, safe='')}"
    place = f"[{host}]" if ":" in host else host
    return f"{'amqps' if tls else 'amqp'}://{credentials}@{place}:{port}/{quote(vhost, safe='')}"


class RabbitMQPublisher:
    """`ports.Publisher` on a RabbitMQ exchange.

    On every new connection the exchange is declared durable, which also finds out whether one of that name
    is of another kind. Where this user may not declare, it is enough that the exchange exists; the default
    exchange, which has no name, always does.

    While there is no connection, `publish` waits for what the attempt under way, or the next one, brings. When
    the connection is lost under it, it returns at once, and what had no answer yet is unconfirmed.
    """

    broker_type = "rabbitmq"

    def __init__(
        self,
        *,
        url: str,
        exchange: str,
        exchange_type: str,
        routing_key: str = "",
        mode: Mode = Mode.STRUCTURED,
        ca_file: Path | None = None,
        window: int = WINDOW,
        heartbeat: timedelta = HEARTBEAT,
        reconnect: Backoff = RECONNECT,
        random: Callable[[], float] = system_random.random,
        observe: Callable[[ports.Connectivity], None] = lambda change: None,
    ) -> None:
        """`url` is `amqp://…` or `amqps://…` and holds the password, as `amqp_url` makes it.

        With `amqps` the broker is verified against `ca_file`, or the system's authorities without one. At
        most `window` messages are unconfirmed at any time. `observe` hears of changes, not of every attempt.
        """
        if window < 1:
            raise ValueError(f"window: expected 1 or more, got {window}")
        address = urlsplit(url)
        self._url = url
        self._is_tls = address.scheme == "amqps"
        self._vhost = unquote(address.path[1:]) or "/"
        self._broker = f"{address.hostname}:{address.port or (5671 if self._is_tls else 5672)}"
        self._exchange = exchange
        self._exchange_type = exchange_type
        self._routing_key = routing_key
        self._mode = mode
        self._ca_file = ca_file
        self._window = window
        self._heartbeat = heartbeat
        self._reconnect = reconnect
        self._random = random
        self._channel: ConfirmingChannel | None = None
        self._keeper = Keeper(name="rabbitmq", broker=self._broker, patience=_FIRST_ATTEMPT, observe=observe)

    async def open(self) -> None:
        await self._keeper.open(self._keep_connected)

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> ports.Receipt:
        batch = Batch(events)
        reason = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                # A deadline that has already passed shows here, before anything is sent.
                await asyncio.sleep(0)
                channel = await self._wait_for_channel()
                if channel is None:
                    reason = self.trouble() or ""
                else:
                    await channel.send(batch)
                    reason = f"connection lost: {channel.lost.result()}" if channel.lost.done() else ""
        except TimeoutError:
            reason = self.trouble() or f"no answer within {deadline.total_seconds():g}s"
            if self._channel is not None:
                self._channel.give_up_if_silent(self._heartbeat)
        return ports.Receipt(batch.outcomes.copy(), batch.seconds.copy(), self._explain(batch, reason))

    def trouble(self) -> str | None:
        trouble, channel = self._keeper.trouble(), self._channel
        if trouble is not None or channel is None:
            return trouble
        if channel.lost.done():
            return f"{self._broker}: connection lost: {channel.lost.result()}"
        if channel.is_blocked():
            return f"{self._broker}: the broker takes no messages at present (memory or disk alarm)"
        return None

    async def close(self) -> None:
        await self._keeper.close()

    def _explain(self, batch: Batch, unconfirmed: str) -> str:
        """Why the first event that was not confirmed was not."""
        if batch.outcomes.count(ports.Outcome.CONFIRMED) == len(batch.outcomes):
            return ""
        position = next(i for i, outcome in enumerate(batch.outcomes) if outcome is not ports.Outcome.CONFIRMED)
        match batch.outcomes[position]:
            case ports.Outcome.UNROUTABLE:
                return f"exchange {self._exchange!r} has no queue for routing key {self._routing_key!r}"
            case ports.Outcome.UNSENDABLE:
                return f"cannot be sent: {batch.refusals[position]}"
            case ports.Outcome.REFUSED:
                return "refused by a queue, perhaps because it is full"
            case _:
                return unconfirmed

    async def _wait_for_channel(self) -> ConfirmingChannel | None:
        """The channel in use, if there is one or the next attempt brings one."""
        if self._keeper.is_open and (self._channel is None or self._channel.lost.done()):
            await self._keeper.attempt()
        return self._channel

    async def _keep_connected(self) -> None:
        now = asyncio.get_running_loop().time
        failures = 0
        while True:
            begun = now()
            try:
                await self._hold_connection()
            except Exception as error:  # the loop's edge: whatever it was, the next attempt may be luckier
                self._keeper.failed(error)
                self._keeper.disconnected(describe(error))
                self._keeper.ring()
            await asyncio.sleep(self._reconnect.delay(failures, self._random()).total_seconds())
            # Only a connection that lasted starts the count again: one that is lost as soon as it is made
            # must not be made ten times a second.
            failures = 0 if now() - begun > 2 * self._reconnect.maximum.total_seconds() else failures + 1

    async def _hold_connection(self) -> None:
        connection, channel = await self._connect()
        try:
            self._channel = channel
            self._keeper.connected()
            self._keeper.ring()
            self._keeper.disconnected(f"connection lost: {await channel.lost}")
        finally:
            self._channel = None
            await _release(connection)

    async def _connect(self) -> tuple[Connection, ConfirmingChannel]:
        connection = Connection(
            make_url(self._url, heartbeat=max(1, round(self._heartbeat.total_seconds()))),
            ssl_context=await self._trust() if self._is_tls else None,
            client_properties={"connection_name": "hyperfleet-sentinel"},
        )
        try:
            async with asyncio.timeout(_ATTEMPT.total_seconds()):
                return connection, await self._open_channel(connection)
        except BaseException as error:
            await _release(connection)
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
                # aiormq ends with it, too, what waits for a connection that it gives up.
                raise ConnectionError("connection lost") from error
            raise

    async def _open_channel(self, connection: Connection) -> ConfirmingChannel:
        try:
            await connection.connect()
        except InvalidFrameError as error:
            if "OpenOk" not in str(error):
                raise
            # All that aiormq tells of a refused virtual host is that it expected another frame.
            raise ConnectionError(f"virtual host {self._vhost!r} is unknown, or closed to this user") from error
        if connection.transport is None:
            raise ConnectionError("closed while connecting")
        wire = connection.transport.connection
        try:
            channel = ConfirmingChannel(
                connection=wire,
                exchange=self._exchange,
                routing_key=self._routing_key,
                mode=self._mode,
                window=self._window,
            )
        except (ValueError, TypeError) as error:
            name = f"exchange {self._exchange!r}, routing key {self._routing_key!r}"
            raise ports.BrokerMisconfigured(f"{name}: {error}") from error
        await channel.open()
        if self._exchange:
            await _require_exchange(wire, self._exchange, self._exchange_type)
        return channel

    async def _trust(self) -> ssl.SSLContext:
        # Read for every connection, so that a replaced file is heeded, and in a thread, because it is slow.
        try:
            return await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        except OSError as error:
            raise ConnectionError(f"{self._ca_file}: {describe(error)}") from error


async def _release(connection: Connection) -> None:
    # Whatever is wrong with it, we are done with it.
    with suppress(Exception):
        async with asyncio.timeout(_CLOSING.total_seconds()):
            await connection.close()


async def _require_exchange(connection: AbstractConnection, name: str, kind: str) -> None:
    """Declares the exchange or finds it as expected; raises `BrokerMisconfigured` if it can be neither.

    On channels of their own, because a refusal closes the channel. Reserved names (`amq.…`) are declared like
    any other: where such an exchange exists, that only compares it.
    """
    expected = f"exchange {name!r}: expected a durable one of type {kind}"
    try:
        declaring = await connection.channel(publisher_confirms=False)
        await declaring.exchange_declare(name, exchange_type=kind, durable=True)
        await declaring.close()
    except (ChannelPreconditionFailed, ConnectionCommandInvalid) as error:
        raise ports.BrokerMisconfigured(f"{expected}; the broker says: {describe(error)}") from error
    except ChannelAccessRefused as refusal:
        try:
            looking = await connection.channel(publisher_confirms=False)
            await looking.exchange_declare(name, passive=True)
            await looking.close()
        except ChannelClosed as error:
            says = f"{describe(error)}; {describe(refusal)}"
            raise ports.BrokerMisconfigured(f"{expected}; the broker says: {says}") from error

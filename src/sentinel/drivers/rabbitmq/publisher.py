"""Publishing to RabbitMQ, confirmed.

One connection is kept for as long as the publisher is open. It is made in the background, and made again with
backoff when it cannot be had or is lost, by `connection`; what goes over it is the business of `channel`.
"""

from __future__ import annotations

import asyncio
import random as system_random
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from aiormq.abc import AbstractConnection

from sentinel.core.events import Event, Mode
from sentinel.drivers.rabbitmq import connection
from sentinel.drivers.rabbitmq.channel import ConfirmingChannel
from sentinel.drivers.rabbitmq.confirms import EventBatch
from sentinel.drivers.rabbitmq.connection import HEARTBEAT, RECONNECT, BrokerAddress
from sentinel.drivers.reconnect import ConnectionSupervisor
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, Outcome, Receipt
from sentinel.runtime.backoff import Backoff

WINDOW = 1000


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
        observe: Callable[[Connectivity], None] = lambda change: None,
    ) -> None:
        """`url` is `amqp://…` or `amqps://…` and holds the password, as `connection.amqp_url` makes it.

        With `amqps` the broker is verified against `ca_file`, or the system's authorities without one. At
        most `window` messages are unconfirmed at any time. `observe` hears of changes, not of every attempt.
        """
        if window < 1:
            raise ValueError(f"window: expected 1 or more, got {window}")
        self._endpoint = BrokerAddress(url=url, ca_file=ca_file, heartbeat=heartbeat)
        self._broker = self._endpoint.broker
        self._exchange = exchange
        self._exchange_type = exchange_type
        self._routing_key = routing_key
        self._mode = mode
        self._window = window
        self._heartbeat = heartbeat
        self._reconnect = reconnect
        self._random = random
        self._channel: ConfirmingChannel | None = None
        self._keeper = ConnectionSupervisor(
            name="rabbitmq", broker=self._broker, patience=connection.FIRST_ATTEMPT, observe=observe
        )

    async def open(self) -> None:
        await self._keeper.open(self._keep_connected)

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        batch = EventBatch(events)
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
        return Receipt(batch.outcomes.copy(), batch.seconds.copy(), self._explain(batch, reason))

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

    def _explain(self, batch: EventBatch, unconfirmed: str) -> str:
        """Why the first event that was not confirmed was not."""
        if batch.outcomes.count(Outcome.CONFIRMED) == len(batch.outcomes):
            return ""
        position = next(i for i, outcome in enumerate(batch.outcomes) if outcome is not Outcome.CONFIRMED)
        match batch.outcomes[position]:
            case Outcome.UNROUTABLE:
                return f"exchange {self._exchange!r} has no queue for routing key {self._routing_key!r}"
            case Outcome.UNSENDABLE:
                return f"cannot be sent: {batch.refusals[position]}"
            case Outcome.REFUSED:
                return "refused by a queue, perhaps because it is full"
            case _:
                return unconfirmed

    async def _wait_for_channel(self) -> ConfirmingChannel | None:
        """The channel in use, if there is one or the next attempt brings one."""
        if self._keeper.is_open and (self._channel is None or self._channel.lost.done()):
            await self._keeper.attempt()
        return self._channel

    async def _keep_connected(self) -> None:
        await connection.keep(
            self._hold_connection, keeper=self._keeper, backoff=self._reconnect, random=self._random
        )

    async def _hold_connection(self) -> None:
        async with self._endpoint.connect(self._open_channel) as channel:
            try:
                self._channel = channel
                self._keeper.connected()
                self._keeper.ring()
                self._keeper.disconnected(f"connection lost: {await channel.lost}")
            finally:
                self._channel = None

    async def _open_channel(self, wire: AbstractConnection) -> ConfirmingChannel:
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
            raise Misconfigured(f"{name}: {error}") from error
        await channel.open()
        await connection.require_exchange(wire, self._exchange, self._exchange_type)
        return channel

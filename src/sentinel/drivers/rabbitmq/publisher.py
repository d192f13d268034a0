"""Publishing to RabbitMQ with confirms.

One connection is kept while the publisher is open. `connection` connects in the background and reconnects with
backoff; `channel` sends the events.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Unpack

from aiormq.abc import AbstractConnection

from sentinel.core.events import Event, Mode
from sentinel.drivers.rabbitmq import connection
from sentinel.drivers.rabbitmq.channel import ConfirmingChannel
from sentinel.drivers.rabbitmq.confirms import EventBatch
from sentinel.drivers.rabbitmq.connection import HEARTBEAT, RECONNECT, BrokerAddress, ExchangeOptions, set_lost
from sentinel.drivers.reconnect import ConnectionSupervisor, end_now
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, PublishOutcome, Receipt
from sentinel.runtime.backoff import Backoff

WINDOW = 1000


class RabbitMQPublisher:
    """`ports.publisher.Publisher` on a RabbitMQ exchange.

    On every new connection the exchange is declared durable, which also detects an exchange of the same name but
    another type. If this user may not declare it, it only has to exist. The default exchange, which has no name,
    always does.

    Without a connection, `publish` waits for the result of the current or next attempt. If the connection is lost
    during a call, the call returns at once, and events without a confirm are unconfirmed.
    """

    broker_type = "rabbitmq"

    def __init__(
        self,
        *,
        mode: Mode = Mode.STRUCTURED,
        window: int = WINDOW,
        reconnect: Backoff = RECONNECT,
        jitter: Callable[[], float] = random.random,
        observe: Callable[[Connectivity], None] = lambda change: None,
        **options: Unpack[ExchangeOptions],
    ) -> None:
        """At most `window` messages are unconfirmed at any time. `observe` is called on changes, not on every
        attempt."""
        if window < 1:
            raise ValueError(f"window: expected 1 or more, got {window}")
        self._heartbeat = options.get("heartbeat", HEARTBEAT)
        self._address = BrokerAddress(
            url=options["url"], ca_file=options.get("ca_file"), heartbeat=self._heartbeat
        )
        self._exchange = options["exchange"]
        self._exchange_type = options["exchange_type"]
        self._routing_key = options.get("routing_key", "")
        self._mode = mode
        self._window = window
        self._reconnect = reconnect
        self._jitter = jitter
        self._channel: ConfirmingChannel | None = None
        self._attempt: asyncio.Timeout | None = None
        """Ends the current or last `publish`."""
        self._supervisor = ConnectionSupervisor(
            name="rabbitmq", broker=self._address.broker, open_timeout=connection.OPEN_TIMEOUT, observe=observe
        )

    async def open(self) -> None:
        await self._supervisor.start(
            lambda: connection.keep_connected(
                self._hold_connection, supervisor=self._supervisor, backoff=self._reconnect, jitter=self._jitter
            )
        )

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        batch = EventBatch(events)
        reason = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()) as self._attempt:
                # A deadline that has already passed raises here, before anything is sent.
                await asyncio.sleep(0)
                channel = await self._wait_for_channel()
                if channel is None:
                    reason = self.unavailable_reason() or ""
                else:
                    await channel.send(batch)
                    reason = f"connection lost: {channel.lost.result()}" if channel.lost.done() else ""
        except TimeoutError:
            reason = self.unavailable_reason() or f"no response within {deadline.total_seconds():g}s"
            if self._channel is not None:
                self._channel.fail_if_silent(self._heartbeat)
        return Receipt(batch.outcomes.copy(), batch.seconds.copy(), self._first_error(batch, reason))

    def abandon(self) -> None:
        if self._channel is not None:
            self._address.reset()
            set_lost(self._channel.lost, "abandoned")
        end_now(self._attempt)

    def unavailable_reason(self) -> str | None:
        unavailable_reason, channel = self._supervisor.unavailable_reason(), self._channel
        if unavailable_reason is not None or channel is None:
            return unavailable_reason
        if channel.lost.done():
            return f"{self._address.broker}: connection lost: {channel.lost.result()}"
        if channel.is_blocked():
            return f"{self._address.broker}: the broker accepts no messages now (memory or disk alarm)"
        return None

    async def close(self) -> None:
        await self._supervisor.stop()

    def _first_error(self, batch: EventBatch, unconfirmed_reason: str) -> str:
        """Return why the first event that was not confirmed failed; empty if all were."""
        if batch.outcomes.count(PublishOutcome.CONFIRMED) == len(batch.outcomes):
            return ""
        position = next(i for i, outcome in enumerate(batch.outcomes) if outcome is not PublishOutcome.CONFIRMED)
        match batch.outcomes[position]:
            case PublishOutcome.UNROUTABLE:
                return f"exchange {self._exchange!r} has no queue for routing key {self._routing_key!r}"
            case PublishOutcome.UNSENDABLE:
                return f"cannot be sent: {batch.unsendable_reasons[position]}"
            case PublishOutcome.REFUSED:
                return "refused by a queue, perhaps because it is full"
            case _:
                return unconfirmed_reason

    async def _wait_for_channel(self) -> ConfirmingChannel | None:
        if self._supervisor.is_running and (self._channel is None or self._channel.lost.done()):
            await self._supervisor.wait_for_attempt()
        return self._channel

    async def _hold_connection(self) -> None:
        async with self._address.connect(self._open_channel) as channel:
            try:
                self._channel = channel
                self._supervisor.attempt_succeeded()
                self._supervisor.disconnected(f"connection lost: {await channel.lost}")
            finally:
                self._channel = None

    async def _open_channel(self, amqp_connection: AbstractConnection) -> ConfirmingChannel:
        try:
            channel = ConfirmingChannel(
                connection=amqp_connection,
                exchange=self._exchange,
                routing_key=self._routing_key,
                mode=self._mode,
                window=self._window,
            )
        except (ValueError, TypeError) as error:
            name = f"exchange {self._exchange!r}, routing key {self._routing_key!r}"
            raise Misconfigured(f"{name}: {error}") from error
        await channel.open()
        await connection.require_exchange(amqp_connection, self._exchange, self._exchange_type)
        return channel

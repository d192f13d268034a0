"""Receiving from RabbitMQ.

A subscription is a durable queue of the same name, bound to the exchange of the events. Each subscriber
consumes from it over one connection, with manual acks and a prefetch of `max_in_flight`. It connects in the
background and reconnects with backoff.

The subscriber itself publishes dead letters, instead of the broker's dead-letter exchange: so the reason is
included, and no existing queue has to be redeclared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Unpack

from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from pamqp.commands import Basic

from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery
from sentinel.drivers.event_messages import DecodedMessage
from sentinel.drivers.rabbitmq import connection, received_messages
from sentinel.drivers.rabbitmq.connection import CALL_ERRORS, HEARTBEAT, RECONNECT, BrokerAddress, ExchangeOptions
from sentinel.drivers.reconnect import ConnectionSupervisor, connection_loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

_CALL_TIMEOUT = timedelta(seconds=5)
_MAX_PREFETCH = 65_535


class RabbitMQSubscriber:
    """`ports.subscription.Subscriber` on a RabbitMQ queue.

    The dead-letter queue is declared together with the queue, so that any message can be dead-lettered. If this
    user may not declare queues, both must exist and the first must be bound.
    """

    broker_type = "rabbitmq"

    def __init__(
        self,
        *,
        subscription: str,
        max_in_flight: int,
        max_hold: timedelta,
        reconnect: Backoff = RECONNECT,
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random.random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        observe: Callable[[Connectivity], None] = lambda change: None,
        log: Log | None = None,
        **options: Unpack[ExchangeOptions],
    ) -> None:
        """Only exchanges that match keys exactly use `routing_key`.

        A message is requeued and received again after `max_hold`, because brokers limit the time. `observe` is
        called on changes, not on every attempt.
        """
        if max_in_flight > _MAX_PREFETCH:
            raise ValueError(f"max_in_flight: expected at most {_MAX_PREFETCH}, got {max_in_flight}")
        self._address = BrokerAddress(
            url=options["url"],
            ca_file=options.get("ca_file"),
            heartbeat=options.get("heartbeat", HEARTBEAT),
            repair_headers=True,
        )
        self._exchange = options["exchange"]
        self._exchange_type = options["exchange_type"]
        self._binding_key = _binding_key(self._exchange_type, options.get("routing_key", ""))
        self._queue = subscription
        self._dead_letter_queue = subscription + DEAD_LETTERS_SUFFIX
        self._max_in_flight = max_in_flight
        self._reconnect = reconnect
        self._jitter = jitter
        self._now = now
        self._log = log or get_logger("subscriber")
        self._held: HeldDeliveries[_RabbitMQMessage] = HeldDeliveries(
            max_in_flight=max_in_flight, max_hold=max_hold, retry=retry, jitter=jitter, now=now, log=self._log
        )
        self._supervisor = ConnectionSupervisor(
            name="rabbitmq",
            broker=self._address.broker,
            open_timeout=connection.OPEN_TIMEOUT,
            observe=observe,
            role="subscriber",
        )

    async def open(self) -> None:
        await self._supervisor.start(
            lambda: connection.keep_connected(
                self._hold_connection, supervisor=self._supervisor, backoff=self._reconnect, jitter=self._jitter
            )
        )

    def deliveries(self) -> AsyncIterator[HeldDelivery[_RabbitMQMessage]]:
        return self._held.deliveries()

    def unavailable_reason(self) -> str | None:
        return self._supervisor.unavailable_reason()

    async def close(self) -> None:
        # Settlements first: they are sent in order, and the broker redelivers the rest when the connection ends.
        await self._held.close()
        await self._supervisor.stop()

    async def _hold_connection(self) -> None:
        async with self._address.connect(self._consume) as lost:
            try:
                self._supervisor.attempt_succeeded()
                self._supervisor.disconnected(f"connection lost: {await lost}")
            finally:
                self._held.connection_lost()

    async def _consume(self, amqp_connection: AbstractConnection) -> asyncio.Future[str]:
        """Start to consume. Return a future that resolves with the reason when consuming has ended."""
        await connection.require_exchange(amqp_connection, self._exchange, self._exchange_type)
        is_declared = await connection.require_queue(amqp_connection, self._queue)
        await connection.require_queue(amqp_connection, self._dead_letter_queue)
        await connection.bind_queue(
            amqp_connection,
            queue=self._queue,
            exchange=self._exchange,
            routing_key=self._binding_key,
            is_required=is_declared,
        )
        channel = await amqp_connection.channel(publisher_confirms=False)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        connection.set_lost_on_close(lost, channel, amqp_connection)
        channel.on_consumer_cancel_callbacks.add(
            lambda _: connection.set_lost(lost, f"the broker cancelled the consumer of queue {self._queue!r}")
        )

        async def on_message(delivered: DeliveredMessage) -> None:
            # A message that was in transit when the connection was lost can no longer be settled.
            if not lost.done():
                decoded = received_messages.decode(delivered, log=self._log)
                self._held.add(
                    _RabbitMQMessage(
                        delivered, decoded, amqp_connection, channel, self._dead_letter_queue, self._now
                    )
                )

        await channel.basic_qos(prefetch_count=self._max_in_flight)
        await channel.basic_consume(self._queue, on_message)
        return lost


class _RabbitMQMessage:
    """`deliveries.BrokerMessage` on one channel."""

    def __init__(
        self,
        delivered: DeliveredMessage,
        decoded: DecodedMessage,
        amqp_connection: AbstractConnection,
        channel: AbstractChannel,
        dead_letter_queue: str,
        now: Callable[[], datetime],
    ) -> None:
        self.message = decoded.message
        self.key = decoded.key
        self.attempts = decoded.attempts
        self.published_time = decoded.published_time
        self._delivered = delivered
        self._tag = delivered.delivery_tag or 0
        self._connection = amqp_connection
        self._channel = channel
        self._dead_letter_queue = dead_letter_queue
        self._now = now

    async def ack(self) -> bool:
        return await _was_sent(self._channel.basic_ack(self._tag, wait=False))

    async def nack(self) -> bool:
        return await _was_sent(self._channel.basic_reject(self._tag, requeue=True, wait=False))

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        properties = received_messages.dead_letter_properties(
            self._delivered, reason=reason, attempts=attempts, now=self._now()
        )
        return await _was_sent(self._publish_dead_letter(properties)) and await self.ack()

    async def _publish_dead_letter(self, properties: Basic.Properties) -> None:
        # An operator who emptied the queue may have deleted it as well.
        await connection.require_queue(self._connection, self._dead_letter_queue)
        await connection.publish_to_queue(
            self._connection, queue=self._dead_letter_queue, body=self.message.body, properties=properties
        )


async def _was_sent(call: Awaitable[object]) -> bool:
    try:
        with connection_loss_as_error():
            async with asyncio.timeout(_CALL_TIMEOUT.total_seconds()):
                await call
    except (*CALL_ERRORS, Misconfigured):
        return False
    return True


def _binding_key(exchange_type: str, routing_key: str) -> str:
    """Return the key that matches every event of our publishers."""
    match exchange_type:
        case "topic":
            return "#"
        case "fanout" | "headers":
            return ""
        case _:
            return routing_key

"""Receiving from RabbitMQ.

A subscription is a durable queue of its name, bound to the exchange that events are published to. Subscribers
consume from it over one connection each, with as much prefetch as they may hold and an answer for every message.
The connection is made in the background, and made again with backoff when it cannot be had or is lost.

Dead letters are published by the subscriber itself instead of by a dead-letter exchange of the broker: so the
reason goes along, and no queue that exists has to be declared differently.
"""

from __future__ import annotations

import asyncio
import random as system_random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage

from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery
from sentinel.drivers.event_messages import Received
from sentinel.drivers.rabbitmq import connection, received_messages
from sentinel.drivers.rabbitmq.channel import describe
from sentinel.drivers.rabbitmq.connection import CALL_FAILED, HEARTBEAT, RECONNECT, BrokerAddress
from sentinel.drivers.reconnect import ConnectionSupervisor, loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

_ANSWER = timedelta(seconds=5)
_MOST_PREFETCH = 65_535


class RabbitMQSubscriber:
    """`ports.subscription.Subscriber` on a RabbitMQ queue.

    The queue of dead letters is declared with the other, so that a message can be given up from the first one
    on. Where this user may not declare, it is enough that both exist, and that somebody has bound the first.
    """

    broker_type = "rabbitmq"

    def __init__(
        self,
        *,
        url: str,
        exchange: str,
        exchange_type: str,
        subscription: str,
        max_in_flight: int,
        max_hold: timedelta,
        routing_key: str = "",
        ca_file: Path | None = None,
        heartbeat: timedelta = HEARTBEAT,
        reconnect: Backoff = RECONNECT,
        retry: Backoff = RETRY,
        random: Callable[[], float] = system_random.random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        observe: Callable[[Connectivity], None] = lambda change: None,
        log: Log | None = None,
    ) -> None:
        """A message is given back after `max_hold`, and taken again: brokers have a limit of their own.
        `url`, exchange, its type and `ca_file` are those of the publisher, as is the `routing_key`, which only
        exchanges that compare keys for equality need. `observe` hears of changes, not of every attempt; `log` of
        messages that a fault of ours keeps from being read or settled."""
        if max_in_flight > _MOST_PREFETCH:
            raise ValueError(f"max_in_flight: expected at most {_MOST_PREFETCH}, got {max_in_flight}")
        self._endpoint = BrokerAddress(url=url, ca_file=ca_file, heartbeat=heartbeat, mends_headers=True)
        self._exchange = exchange
        self._exchange_type = exchange_type
        self._binding_key = _binding_key(exchange_type, routing_key)
        self._queue = subscription
        self._dead_letters = subscription + DEAD_LETTERS_SUFFIX
        self._most = max_in_flight
        self._reconnect = reconnect
        self._random = random
        self._now = now
        self._log = log or get_logger("subscriber")
        self._intake: HeldDeliveries[_Parcel] = HeldDeliveries(
            max_in_flight=max_in_flight,
            max_hold=max_hold,
            retry=retry,
            random=random,
            now=now,
            log=self._log,
        )
        self._keeper = ConnectionSupervisor(
            name="rabbitmq",
            broker=self._endpoint.broker,
            patience=connection.FIRST_ATTEMPT,
            observe=observe,
            role="subscriber",
        )

    async def open(self) -> None:
        await self._keeper.open(self._keep_connected)

    def deliveries(self) -> AsyncIterator[HeldDelivery[_Parcel]]:
        return self._intake.deliveries()

    def trouble(self) -> str | None:
        return self._keeper.trouble()

    async def close(self) -> None:
        # Answers first: they go out in order, and what has none when the connection ends is delivered again.
        await self._intake.close()
        await self._keeper.close()

    async def _keep_connected(self) -> None:
        await connection.keep(
            self._hold_connection, keeper=self._keeper, backoff=self._reconnect, random=self._random
        )

    async def _hold_connection(self) -> None:
        async with self._endpoint.connect(self._consume) as lost:
            try:
                self._keeper.connected()
                self._keeper.ring()
                self._keeper.disconnected(f"connection lost: {await lost}")
            finally:
                self._intake.lost()

    async def _consume(self, wire: AbstractConnection) -> asyncio.Future[str]:
        """Begins to consume; the future tells when and why that has ended."""
        await connection.require_exchange(wire, self._exchange, self._exchange_type)
        is_ours = await connection.require_queue(wire, self._queue)
        await connection.require_queue(wire, self._dead_letters)
        await connection.bind(
            wire,
            queue=self._queue,
            exchange=self._exchange,
            routing_key=self._binding_key,
            is_required=is_ours,
        )
        channel = await wire.channel(publisher_confirms=False)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def lose(reason: str) -> None:
            if not lost.done():
                lost.set_result(reason)

        def lose_by(closing: asyncio.Future[object]) -> None:
            lose("closed" if closing.cancelled() else describe(closing.exception()))

        for closing in (channel.closing, wire.closing):
            closing.add_done_callback(lose_by)
        channel.on_consumer_cancel_callbacks.add(lambda _: lose(f"queue {self._queue!r} was taken away"))

        async def take(delivered: DeliveredMessage) -> None:
            # One that was on its way when the connection was given up belongs to nobody any more.
            if not lost.done():
                read = received_messages.receive(delivered, log=self._log)
                self._intake.arrived(_Parcel(delivered, read, channel, wire, self._dead_letters, self._now))

        await channel.basic_qos(prefetch_count=self._most)
        await channel.basic_consume(self._queue, take)
        return lost


class _Parcel:
    """A message on one channel; `intake.Parcel`."""

    def __init__(
        self,
        delivered: DeliveredMessage,
        received: Received,
        channel: AbstractChannel,
        wire: AbstractConnection,
        dead_letters: str,
        now: Callable[[], datetime],
    ) -> None:
        self.message = received.message
        self.key = received.key
        self.attempts = received.attempts
        self.published_time = received.published_time
        self._delivered = delivered
        self._tag = delivered.delivery_tag or 0
        self._channel = channel
        self._wire = wire
        self._dead_letters = dead_letters
        self._now = now

    async def accept(self) -> bool:
        try:
            with loss_as_error():
                async with asyncio.timeout(_ANSWER.total_seconds()):
                    await self._channel.basic_ack(self._tag, wait=False)
        except CALL_FAILED:
            return False
        return True

    async def give_back(self) -> bool:
        try:
            with loss_as_error():
                async with asyncio.timeout(_ANSWER.total_seconds()):
                    await self._channel.basic_reject(self._tag, requeue=True, wait=False)
        except CALL_FAILED:
            return False
        return True

    async def bury(self, reason: str, *, attempts: int) -> bool:
        properties = received_messages.as_dead_letter(
            self._delivered, reason=reason, attempts=attempts, now=self._now()
        )
        try:
            with loss_as_error():
                async with asyncio.timeout(_ANSWER.total_seconds()):
                    # Whoever emptied the queue may have removed it, too.
                    await connection.require_queue(self._wire, self._dead_letters)
                    await connection.put(
                        self._wire, queue=self._dead_letters, body=self.message.body, properties=properties
                    )
        except (*CALL_FAILED, Misconfigured):
            return False
        return await self.accept()


def _binding_key(exchange_type: str, routing_key: str) -> str:
    """The key that lets every event of our publishers through."""
    match exchange_type:
        case "topic":
            return "#"
        case "fanout" | "headers":
            return ""
        case _:
            return routing_key

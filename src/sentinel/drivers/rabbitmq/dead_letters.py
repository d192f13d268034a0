"""The dead letters of a subscription on RabbitMQ.

AMQP cannot look into a queue. Messages are taken from it one by one without an answer, and when the channel is
closed they are back, in their old order. So every operation here is a connection of its own; a process that
dies in the middle has lost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic

from sentinel.drivers.rabbitmq import connection, received_messages
from sentinel.drivers.rabbitmq.channel import describe
from sentinel.drivers.rabbitmq.connection import CALL_FAILED, BrokerAddress
from sentinel.drivers.reconnect import loss_as_error
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, DeadLetter

_ANSWER = timedelta(seconds=10)
_NOWHERE = logging.NullHandler()


class _Session(msgspec.Struct, frozen=True):
    wire: AbstractConnection
    channel: AbstractChannel
    count: int
    """How many letters there were when it began: those that come meanwhile are left alone."""


class RabbitMQDeadLetters:
    """`ports.subscription.DeadLetters` on a RabbitMQ queue."""

    def __init__(
        self,
        *,
        url: str,
        subscription: str,
        ca_file: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._endpoint = BrokerAddress(url=url, ca_file=ca_file, mends_headers=True)
        self._subscription = subscription
        self._queue = subscription + DEAD_LETTERS_SUFFIX
        self._now = now
        # What goes wrong is raised. Where nobody has set up logging, aiormq would write it to stderr as well.
        logging.getLogger("aiormq").addHandler(_NOWHERE)

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        async with self._session() as session:
            return [received_messages.dead_letter(each) async for each in self._letters(session, limit)]

    async def replay(self, letter_id: str | None = None) -> int:
        count = 0
        async with self._session() as session:
            async for delivered in self._letters(session, session.count):
                if _is_meant(delivered, letter_id):
                    await self._put_back(session.wire, delivered)
                    await _forget(session.channel, delivered)
                    count += 1
        return count

    async def drop(self, letter_id: str | None = None) -> int:
        count = 0
        async with self._session() as session:
            async for delivered in self._letters(session, session.count):
                if _is_meant(delivered, letter_id):
                    await _forget(session.channel, delivered)
                    count += 1
        return count

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        try:
            with loss_as_error():
                async with self._endpoint.connect(self._begin) as session:
                    yield session
        except CALL_FAILED as error:
            raise Unavailable(f"{self._endpoint.broker}: {describe(error)}") from error

    async def _begin(self, wire: AbstractConnection) -> _Session:
        count = 0
        try:
            looking = await wire.channel(publisher_confirms=False)
            count = (await looking.queue_declare(self._queue, passive=True)).message_count or 0
            await looking.close()
        except ChannelNotFoundEntity:
            pass  # nobody has ever given anything up
        return _Session(wire, await wire.channel(publisher_confirms=False), count)

    async def _letters(self, session: _Session, limit: int) -> AsyncIterator[DeliveredMessage]:
        for _ in range(min(session.count, limit)):
            async with asyncio.timeout(_ANSWER.total_seconds()):
                delivered = await session.channel.basic_get(self._queue)
            if isinstance(delivered.delivery, Basic.GetEmpty):
                break
            yield delivered

    async def _put_back(self, wire: AbstractConnection, delivered: DeliveredMessage) -> None:
        try:
            async with asyncio.timeout(_ANSWER.total_seconds()):
                await connection.put(
                    wire,
                    queue=self._subscription,
                    body=delivered.body,
                    properties=received_messages.as_replay(delivered, now=self._now()),
                )
        except PublishError as error:
            raise Misconfigured(f"queue {self._subscription!r} does not exist") from error


async def _forget(channel: AbstractChannel, delivered: DeliveredMessage) -> None:
    async with asyncio.timeout(_ANSWER.total_seconds()):
        await channel.basic_ack(delivered.delivery_tag or 0)


def _is_meant(delivered: DeliveredMessage, letter_id: str | None) -> bool:
    return letter_id is None or received_messages.dead_letter(delivered).id == letter_id

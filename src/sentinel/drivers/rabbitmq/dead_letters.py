"""The dead letters of a subscription on RabbitMQ.

AMQP cannot browse a queue. Messages are fetched one by one without an ack, and when the channel closes they
return to the queue in their old order. So every operation uses its own connection, and a process that dies
midway loses nothing.
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
from sentinel.drivers.rabbitmq.connection import CALL_ERRORS, BrokerAddress, describe_error
from sentinel.drivers.reconnect import connection_loss_as_error
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, DeadLetter

_CALL_TIMEOUT = timedelta(seconds=10)
_NULL_HANDLER = logging.NullHandler()


class _Session(msgspec.Struct, frozen=True):
    amqp_connection: AbstractConnection
    channel: AbstractChannel
    count: int
    """Letters at the start; those that arrive later are ignored."""


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
        self._address = BrokerAddress(url=url, ca_file=ca_file, repair_headers=True)
        self._subscription = subscription
        self._queue = subscription + DEAD_LETTERS_SUFFIX
        self._now = now
        # Errors are raised. Without logging configured, aiormq would also write them to stderr.
        logging.getLogger("aiormq").addHandler(_NULL_HANDLER)

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        async with self._session() as session:
            return [received_messages.read_dead_letter(each) async for each in self._fetch(session, limit)]

    async def replay(self, letter_id: str | None = None) -> int:
        count = 0
        async with self._session() as session:
            async for letter in self._fetch_matching(session, letter_id):
                await self._publish_replay(session.amqp_connection, letter)
                await _ack(session.channel, letter)
                count += 1
        return count

    async def drop(self, letter_id: str | None = None) -> int:
        count = 0
        async with self._session() as session:
            async for letter in self._fetch_matching(session, letter_id):
                await _ack(session.channel, letter)
                count += 1
        return count

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        try:
            with connection_loss_as_error():
                async with self._address.connect(self._open_session) as session:
                    yield session
        except CALL_ERRORS as error:
            raise Unavailable(f"{self._address.broker}: {describe_error(error)}") from error

    async def _open_session(self, amqp_connection: AbstractConnection) -> _Session:
        count = 0
        try:
            channel = await amqp_connection.channel(publisher_confirms=False)
            count = (await channel.queue_declare(self._queue, passive=True)).message_count or 0
            await channel.close()
        except ChannelNotFoundEntity:
            pass  # nothing was ever dead-lettered
        return _Session(amqp_connection, await amqp_connection.channel(publisher_confirms=False), count)

    async def _fetch(self, session: _Session, limit: int) -> AsyncIterator[DeliveredMessage]:
        for _ in range(min(session.count, limit)):
            async with asyncio.timeout(_CALL_TIMEOUT.total_seconds()):
                delivered = await session.channel.basic_get(self._queue)
            if isinstance(delivered.delivery, Basic.GetEmpty):
                break
            yield delivered

    async def _fetch_matching(self, session: _Session, letter_id: str | None) -> AsyncIterator[DeliveredMessage]:
        async for delivered in self._fetch(session, session.count):
            if letter_id is None or received_messages.read_dead_letter(delivered).id == letter_id:
                yield delivered

    async def _publish_replay(self, amqp_connection: AbstractConnection, letter: DeliveredMessage) -> None:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT.total_seconds()):
                await connection.publish_to_queue(
                    amqp_connection,
                    queue=self._subscription,
                    body=letter.body,
                    properties=received_messages.replay_properties(letter, now=self._now()),
                )
        except PublishError as error:
            raise Misconfigured(f"queue {self._subscription!r} does not exist") from error


async def _ack(channel: AbstractChannel, letter: DeliveredMessage) -> None:
    async with asyncio.timeout(_CALL_TIMEOUT.total_seconds()):
        await channel.basic_ack(letter.delivery_tag or 0)

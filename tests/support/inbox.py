"""A queue on the real RabbitMQ in which a test reads what was published to its exchange."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import msgspec
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage, AbstractQueue


class Inbox:
    """A durable fanout exchange of its own, and a durable queue bound to it."""

    def __init__(self, url: str, exchange: AbstractExchange, queue: AbstractQueue) -> None:
        self.url = url
        self._exchange = exchange
        self._queue = queue

    @property
    def exchange(self) -> str:
        return self._exchange.name

    async def messages(self, count: int, *, within: float = 30) -> list[AbstractIncomingMessage]:
        """Takes so many messages, waiting for them."""
        received: list[AbstractIncomingMessage] = []
        try:
            async with asyncio.timeout(within), self._queue.iterator() as arriving:
                async for message in arriving:
                    await message.ack()
                    received.append(message)
                    if len(received) == count:
                        break
        except TimeoutError:
            raise AssertionError(f"{len(received)} of {count} messages within {within} s") from None
        return received

    async def events(self, count: int, *, within: float = 30) -> list[dict[str, Any]]:
        """Takes so many structured events."""
        return [msgspec.json.decode(message.body) for message in await self.messages(count, within=within)]

    async def is_empty(self) -> bool:
        """Whether nothing waits at this moment."""
        return await self._queue.get(no_ack=True, fail=False) is None

    async def unbind(self) -> None:
        """Nothing is routed here any longer."""
        await self._queue.unbind(self._exchange)

    async def bind(self) -> None:
        """From now on what is published arrives here."""
        await self._queue.bind(self._exchange)


@asynccontextmanager
async def open_inbox(url: str) -> AsyncIterator[Inbox]:
    """An inbox that is gone afterwards."""
    name = f"test-{uuid.uuid4().hex}"
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1000)
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT, durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange)
        try:
            yield Inbox(url, exchange, queue)
        finally:
            await queue.delete(if_unused=False, if_empty=False)
            await exchange.delete(if_unused=False)

"""What end-to-end tests read: the events in a queue on a real RabbitMQ."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from aio_pika.abc import AbstractIncomingMessage

from tests.support.brokers.rabbitmq import Inbox as Queue

PATIENCE = timedelta(seconds=30)


class Inbox:
    """An exchange and a queue of this test's own, and where they are."""

    def __init__(self, url: str, queue: Queue) -> None:
        self.url = url
        self.exchange = queue.exchange
        self._queue = queue

    async def messages(self, count: int) -> list[AbstractIncomingMessage]:
        """Takes so many messages, waiting for them."""
        return await self._queue.receive(count, within=PATIENCE)

    async def events(self, count: int) -> list[dict[str, Any]]:
        """Takes so many structured events."""
        return [msgspec.json.decode(message.body) for message in await self.messages(count)]

    async def is_empty(self) -> bool:
        """Whether nothing waits at this moment."""
        return await self._queue.waiting() == 0

    async def unbind(self) -> None:
        """Nothing is routed here any longer."""
        await self._queue.unbind()

    async def bind(self) -> None:
        """From now on what is published arrives here."""
        await self._queue.bind()

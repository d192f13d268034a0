"""RabbitMQ for tests: unique names, an inbox, a proxy that can fail, a private node."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import msgspec
import pamqp.frame
from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import DeliveryError
from pamqp.commands import Basic

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq.connection import amqp_url
from sentinel.runtime.backoff import Backoff
from tests.support.tcp_proxy import TcpProxy
from tools.services.rabbitmq import RabbitMQNode

AT_ONCE = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=50))
TIMEOUT = timedelta(seconds=90)
"""Far longer than anything here takes."""


def url_of(port: int, *, vhost: str = "/", user: tuple[str, str] = ("guest", "guest"), tls: bool = False) -> str:
    """Build the URL of a broker on loopback; `user` is a name and a password."""
    return amqp_url(host="127.0.0.1", port=port, vhost=vhost, username=user[0], password=user[1], tls=tls)


def unique(what: str) -> str:
    """Return a name that no other test uses."""
    return f"test-{what}-{uuid.uuid4().hex[:12]}"


def make_events(count: int, *, first: int = 0, padding: int = 0) -> list[Event]:
    """Make events that differ in everything that may differ within a batch."""
    return [
        Event(
            id=f"event-{number}",
            type="com.redhat.hyperfleet.cluster.reconcile",
            subject=f"cls-{number}",
            time="2026-03-01T12:00:00.250000Z",
            data=msgspec.Raw(msgspec.json.encode({"resource_id": f"cls-{number}", "padding": "x" * padding})),
        )
        for number in range(first, first + count)
    ]


async def eventually(condition: Callable[[], bool], *, timeout: timedelta = TIMEOUT) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(timeout.total_seconds()):
        while not condition():  # noqa: ASYNC110 - the drivers have no event for it
            await asyncio.sleep(0.01)


class Inbox:
    """An exchange and a bound queue for one test, which receives published messages from it.

    From the first call on, messages are consumed as they arrive and kept here: cancelling a consumer would leave
    messages in transit, which are neither received nor counted as waiting.
    """

    def __init__(
        self,
        url: str,
        channel: AbstractChannel,
        exchange: AbstractExchange,
        queue: AbstractQueue,
        routing_key: str,
    ) -> None:
        self.url = url
        self.exchange = exchange.name
        self.queue = queue.name
        self._channel = channel
        self._exchange = exchange
        self._queue = queue
        self._routing_key = routing_key
        self._consuming: asyncio.Future[str] | None = None
        self._arrived: list[AbstractIncomingMessage] = []
        self._arrival = asyncio.Event()
        self._marker = ""
        self._is_marked = asyncio.Event()

    async def bind(self) -> None:
        await self._queue.bind(self._exchange, self._routing_key)

    async def unbind(self) -> None:
        await self._queue.unbind(self._exchange, self._routing_key)

    async def delete_exchange(self) -> None:
        await self._channel.exchange_delete(self.exchange)

    async def receive(self, count: int, *, timeout: timedelta = TIMEOUT) -> list[AbstractIncomingMessage]:
        """Receive the next `count` messages in the order of the queue."""
        await self._consume()
        async with asyncio.timeout(timeout.total_seconds()):
            while len(self._arrived) < count:
                self._arrival.clear()
                await self._arrival.wait()
        received, self._arrived = self._arrived[:count], self._arrived[count:]
        return received

    async def events(self, count: int) -> list[dict[str, Any]]:
        """Receive the next `count` messages as structured events."""
        return [msgspec.json.decode(message.body) for message in await self.receive(count)]

    async def is_empty(self) -> bool:
        return await self.waiting() == 0

    async def receive_all(self) -> list[AbstractIncomingMessage]:
        """Receive everything that is in the queue now."""
        return await self.receive(await self.waiting())

    async def waiting(self) -> int:
        """Return how many messages are in the queue now."""
        await self._consume()
        # The broker's count excludes messages in transit, but a marker message arrives after all of them.
        self._marker = unique("marker")
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await self._append(aio_pika.Message(b"", message_id=self._marker))
            await self._is_marked.wait()
        self._is_marked.clear()
        return len(self._arrived)

    async def _append(self, message: aio_pika.Message) -> None:
        while True:
            try:
                await self._channel.default_exchange.publish(message, routing_key=self.queue)
                return
            except DeliveryError:
                # The queue is full and being emptied.
                await asyncio.sleep(0.01)

    async def _consume(self) -> None:
        if self._consuming is None:
            self._consuming = asyncio.ensure_future(self._queue.consume(self._take, no_ack=True))
        await asyncio.shield(self._consuming)  # a call that is cancelled closes the channel

    async def _take(self, message: AbstractIncomingMessage) -> None:
        if message.message_id == self._marker:
            self._is_marked.set()
        else:
            self._arrived.append(message)
            self._arrival.set()


@asynccontextmanager
async def open_inbox(
    url: str,
    *,
    exchange: str | None = None,
    queue: str | None = None,
    exchange_type: str = "fanout",
    durable: bool = True,
    routing_key: str = "",
    is_bound: bool = True,
    keep: bool = False,
    arguments: Mapping[str, int | str] | None = None,
) -> AsyncIterator[Inbox]:
    """Declare an inbox on the broker, and delete it afterwards unless `keep` is set."""
    connection = await aio_pika.connect(url, timeout=TIMEOUT.total_seconds())
    async with connection:
        channel = await connection.channel()
        declared_exchange = await channel.declare_exchange(
            exchange or unique("exchange"), exchange_type, durable=durable
        )
        declared_queue = await channel.declare_queue(
            queue or unique("queue"), durable=True, arguments=dict(arguments or {})
        )
        inbox = Inbox(url, channel, declared_exchange, declared_queue, routing_key)
        if is_bound:
            await inbox.bind()
        yield inbox
        if not keep:
            await channel.queue_delete(inbox.queue)
            await channel.exchange_delete(inbox.exchange)


class BrokerProxy(TcpProxy):
    """A proxy in front of the broker at a URL."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        assert self._url.hostname is not None
        assert self._url.port is not None
        super().__init__(self._url.hostname, self._url.port)

    @property
    def url(self) -> str:
        """The broker's URL through this proxy."""
        return self._url._replace(netloc=f"{self._url.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}").geturl()

    @property
    def published(self) -> int:
        """How many messages the client has published over the last connection."""
        rest, count = bytes(self.sent[8:]), 0
        while rest and (size := pamqp.frame.frame_parts(rest)[2]) is not None and len(rest) >= size + 8:
            consumed, _, frame = pamqp.frame.unmarshal(rest)
            count += isinstance(frame, Basic.Publish)
            rest = rest[consumed:]
        return count


class PrivateRabbitMQ:
    """A node for one test session, with a TLS listener: tests may stop, kill and reconfigure it."""

    def __init__(self, node: RabbitMQNode) -> None:
        self._node = node
        self.port = node.port
        self.url = url_of(node.port)

    @property
    def tls_port(self) -> int:
        assert self._node.tls is not None
        return self._node.tls.port

    async def kill(self) -> None:
        """Kill it, as a power failure would."""
        await asyncio.to_thread(self._node.kill)

    async def stop(self) -> None:
        """Stop it in order, as an administrator would."""
        await asyncio.to_thread(self._node.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self._node.start)

    async def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` with these arguments."""
        return await asyncio.to_thread(self._node.control, *arguments)

    async def close_connections(self) -> None:
        await self.control("close_all_connections", "closed by a test")

    @asynccontextmanager
    async def alarm(self) -> AsyncIterator[None]:
        """Raise a memory alarm: the broker blocks connections that publish."""
        await self.control("set_vm_memory_high_watermark", "0.000001")
        try:
            yield
        finally:
            await self.end_alarm()

    async def end_alarm(self) -> None:
        await self.control("set_vm_memory_high_watermark", "0.4")

    @asynccontextmanager
    async def consumer_timeout(self, timeout: timedelta) -> AsyncIterator[None]:
        """Make the broker close new channels that hold a message for longer than this."""
        await self._set(consumer_timeout=timeout, channel_tick_interval=timeout / 4)
        try:
            yield
        finally:
            await self._set(consumer_timeout=timedelta(minutes=30), channel_tick_interval=timedelta(minutes=1))

    async def _set(self, **settings: timedelta) -> None:
        # In one call: every `rabbitmqctl` starts a virtual machine.
        changes = [
            f"application:set_env(rabbit, {name}, {value // timedelta(milliseconds=1)})"
            for name, value in settings.items()
        ]
        await self.control("eval", f"{', '.join(changes)}.")

    async def add_user(self, *, password: str, configure: str = ".*", vhost: str = "/") -> str:
        """Add a user who may write, read, and configure what matches the pattern."""
        name = unique("user")
        await self.control("add_user", name, password)
        await self.control("set_permissions", "-p", vhost, name, configure, ".*", ".*")
        return name

"""Runs every publisher under the contract suites that apply to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from aio_pika.abc import AbstractIncomingMessage

from sentinel.core.events import STRUCTURED_CONTENT_TYPE, Mode
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.drivers.pubsub.publish_requests import RequestLimits
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.drivers.stdout import StdoutPublisher
from sentinel.ports.publisher import Publisher
from sentinel.ports.subscription import Message
from tests.contract.publisher import (
    TIMEOUT,
    ConnectionContract,
    ConnectionHarness,
    PublisherContract,
    RoutingContract,
    RoutingHarness,
    StallingContract,
    StallingHarness,
    make_event,
)
from tests.support.brokers import pubsub
from tests.support.brokers.rabbitmq import AT_ONCE, BrokerProxy, Inbox


class MemoryHarness(RoutingHarness, StallingHarness):
    capacity = 2_500

    def __init__(self) -> None:
        self._broker = MemoryBroker(capacity=self.capacity)
        self._subscriber = self._broker.subscribe("harness")

    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        return self._broker.publisher(mode=mode)

    async def receive(self, count: int) -> list[Message]:
        messages: list[Message] = []
        deliveries = self._subscriber.deliveries()
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while len(messages) < count:
                delivery = await anext(deliveries)
                messages.append(delivery.message)
                await delivery.ack()
        return messages

    async def unbind(self) -> None:
        self._broker.unsubscribe("harness")

    async def bind(self) -> None:
        self._subscriber = self._broker.subscribe("harness")

    async def stall(self) -> None:
        filler = self._broker.publisher()
        await filler.open()
        await filler.publish([make_event(0)] * self.capacity, deadline=timedelta(0))

    async def resume(self) -> None:
        await self.receive(self.capacity)


class StdoutHarness(StallingHarness):
    modes = (Mode.STRUCTURED,)
    batch_that_stalls = 1_000  # a pipe holds 64 KiB

    def __init__(self, pipe: asyncio.ReadTransport, reader: asyncio.StreamReader, writer: int) -> None:
        self._pipe = pipe
        self._reader = reader
        self._stream = os.fdopen(writer, "wb", buffering=0)

    @classmethod
    async def make(cls) -> StdoutHarness:
        reading, writing = os.pipe()
        reader = asyncio.StreamReader(limit=2**24)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
        )
        return cls(pipe, reader, writing)

    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        return StdoutPublisher(stream=self._stream)

    async def receive(self, count: int) -> list[Message]:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            return [self._message(await self._reader.readline()) for _ in range(count)]

    async def stall(self) -> None:
        self._pipe.pause_reading()

    async def resume(self) -> None:
        self._pipe.resume_reading()

    def close(self) -> None:
        self._stream.close()
        self._pipe.close()

    def _message(self, line: bytes) -> Message:
        attributes = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        del attributes["data"]
        texts = {name: msgspec.json.decode(value, type=str) for name, value in attributes.items()}
        return Message(line, STRUCTURED_CONTENT_TYPE, texts)


class RabbitMQHarness(RoutingHarness, StallingHarness, ConnectionHarness):
    """The shared broker behind a proxy that can fail."""

    def __init__(self, proxy: BrokerProxy, inbox: Inbox) -> None:
        self._proxy = proxy
        self._inbox = inbox

    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        return RabbitMQPublisher(
            url=self._proxy.url,
            exchange=self._inbox.exchange,
            exchange_type="fanout",
            mode=mode,
            reconnect=AT_ONCE,
        )

    async def receive(self, count: int) -> list[Message]:
        return [_as_message(message) for message in await self._inbox.receive(count)]

    async def receive_waiting(self) -> list[Message]:
        return [_as_message(message) for message in await self._inbox.receive_all()]

    async def unbind(self) -> None:
        await self._inbox.unbind()

    async def bind(self) -> None:
        await self._inbox.bind()

    async def stall(self) -> None:
        self._proxy.hold_responses()

    async def resume(self) -> None:
        self._proxy.release_responses()

    async def cut(self) -> None:
        await self._proxy.cut()

    async def heal(self) -> None:
        await self._proxy.accept()


def _as_message(message: AbstractIncomingMessage) -> Message:
    prefix = "cloudEvents:"
    attributes = {
        name.removeprefix(prefix): str(value) for name, value in message.headers.items() if name.startswith(prefix)
    }
    return Message(message.body, message.content_type or "", attributes)


class PubSubHarness(ConnectionHarness):
    """The shared emulator behind a proxy that can fail."""

    def __init__(self, proxy: BrokerProxy, inbox: pubsub.Inbox) -> None:
        self._proxy = proxy
        self._inbox = inbox

    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        return PubSubPublisher(
            project_id=pubsub.PROJECT,
            topic=self._inbox.topic,
            mode=mode,
            emulator_host=f"127.0.0.1:{self._proxy.port}",
            # Many small requests, so that some are in flight at any time.
            limits=RequestLimits(count=20),
            retry=AT_ONCE,
        )

    async def receive(self, count: int) -> list[Message]:
        return [pubsub.as_message(message) for message in await self._inbox.receive(count)]

    async def receive_waiting(self) -> list[Message]:
        return [pubsub.as_message(message) for message in await self._inbox.receive_waiting()]

    async def cut(self) -> None:
        await self._proxy.cut()

    async def heal(self) -> None:
        await self._proxy.accept()


class StallingPubSubHarness(StallingHarness):
    """A fake service, because the emulator never stalls."""

    def __init__(self, service: pubsub.FakeService) -> None:
        self._service = service

    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        return PubSubPublisher(
            project_id=pubsub.PROJECT, topic="topic", mode=mode, emulator_host=self._service.host, retry=AT_ONCE
        )

    async def receive(self, count: int) -> list[Message]:
        return [pubsub.as_message(message) for message in self._service.accepted[:count]]

    async def stall(self) -> None:
        self._service.is_responding.clear()

    async def resume(self) -> None:
        self._service.is_responding.set()


class TestMemoryPublisher(PublisherContract, RoutingContract, StallingContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestStdoutPublisher(PublisherContract, StallingContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[StdoutHarness]:
        harness = await StdoutHarness.make()
        yield harness
        harness.close()


class TestRabbitMQPublisher(PublisherContract, RoutingContract, StallingContract, ConnectionContract):
    @pytest.fixture
    async def harness(self, rabbitmq_url: str, inbox: Inbox) -> AsyncIterator[RabbitMQHarness]:
        async with BrokerProxy(rabbitmq_url) as proxy:
            yield RabbitMQHarness(proxy, inbox)


class TestPubSubPublisher(PublisherContract, ConnectionContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[PubSubHarness]:
        host = pubsub.emulator_host()
        async with BrokerProxy(f"tcp://{host}") as proxy, pubsub.open_inbox(host) as inbox:
            yield PubSubHarness(proxy, inbox)


class TestStallingPubSubPublisher(StallingContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[StallingPubSubHarness]:
        async with pubsub.fake_service() as service:
            yield StallingPubSubHarness(service)

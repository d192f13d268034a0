"""Runs every subscriber under the contract suites that apply to it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TypedDict

import aio_pika
import pytest

from sentinel.core.events import Event, Mode
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
from sentinel.ports.publisher import Publisher, PublishOutcome
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, DeadLetters, Message, Subscriber
from tests.contract import subscriber as contract
from tests.contract.dead_letters import DeadLettersContract
from tests.support.brokers import pubsub
from tests.support.brokers.rabbitmq import AT_ONCE, BrokerProxy, eventually, unique

SHORT_HOLD = timedelta(milliseconds=40)
LONG_HOLD = timedelta(hours=1)
SHORT_PULL = timedelta(seconds=1.2)
"""The emulator responds one second before the deadline."""
LETTERS_PULL = timedelta(seconds=2.5)
"""The emulator takes up to a second to deliver requeued messages again, and longer on a busy machine."""
MIN_LEASE = timedelta(seconds=10)
CLOSED = "the subscriber is not open"


class Limits(TypedDict):
    max_in_flight: int
    max_hold: timedelta


async def publish(publisher: Publisher, events: Sequence[Event]) -> None:
    await publisher.open()
    receipt = await publisher.publish(events, deadline=contract.TIMEOUT)
    assert set(receipt.outcomes) == {PublishOutcome.CONFIRMED}
    await publisher.close()


class MemoryHarness(contract.SubscriberHarness):
    silence = timedelta(milliseconds=50)

    def __init__(self) -> None:
        self._broker = MemoryBroker(retry=AT_ONCE)

    async def subscribe(self, subscription: str, *, max_in_flight: int = 10) -> Subscriber:
        subscriber = self._broker.subscribe(subscription, max_in_flight=max_in_flight)
        await subscriber.open()
        return subscriber

    async def publish(self, events: Sequence[Event], *, mode: Mode = Mode.STRUCTURED) -> None:
        await publish(self._broker.publisher(mode=mode), events)

    async def publish_junk(self, body: bytes) -> None:
        assert await self._broker.publish(Message(body, "", {}))

    def dead_letters(self, subscription: str) -> DeadLetters:
        return self._broker.dead_letters(subscription)


class ProxiedHarness(contract.ConnectedHarness):
    """A shared broker behind a proxy that can fail; publishers and dead letters connect directly."""

    silence = timedelta(milliseconds=300)

    def __init__(self, proxy: BrokerProxy) -> None:
        self._proxy = proxy
        self._suffix = unique("subscription")
        self._subscribers: list[Subscriber] = []

    @abstractmethod
    def make_subscriber(self, subscription: str, limits: Limits) -> Subscriber: ...

    def name(self, subscription: str) -> str:
        """The name of a subscription on the broker, which other tests use as well."""
        return f"{subscription}-{self._suffix}"

    async def subscribe(self, subscription: str, *, max_in_flight: int = 10) -> Subscriber:
        subscriber = await self._open(subscription, max_in_flight=max_in_flight)
        # gRPC remembers for all channels of a process that an address has just refused a connection.
        await eventually(lambda: subscriber.unavailable_reason() is None)
        return subscriber

    async def subscribe_unreachable(self, subscription: str) -> Subscriber:
        return await self._open(subscription)

    async def subscribe_with_short_hold(self, subscription: str) -> Subscriber:
        return await self._open(subscription, max_hold=SHORT_HOLD)

    async def _open(
        self, subscription: str, *, max_in_flight: int = 10, max_hold: timedelta = LONG_HOLD
    ) -> Subscriber:
        subscriber = self.make_subscriber(subscription, Limits(max_in_flight=max_in_flight, max_hold=max_hold))
        self._subscribers.append(subscriber)
        await subscriber.open()
        return subscriber

    async def cut(self) -> None:
        await self._proxy.cut()
        await eventually(lambda: all(subscriber.unavailable_reason() for subscriber in self._subscribers))

    async def heal(self) -> None:
        await self._proxy.accept()
        lost = [subscriber for subscriber in self._subscribers if subscriber.unavailable_reason() != CLOSED]
        await eventually(lambda: not any(subscriber.unavailable_reason() for subscriber in lost))

    async def remove(self) -> None:
        await asyncio.gather(*(subscriber.close() for subscriber in self._subscribers))


class RabbitMQHarness(ProxiedHarness):
    def __init__(self, url: str, proxy: BrokerProxy) -> None:
        super().__init__(proxy)
        self._url = url
        self._exchange = unique("exchange")
        self._subscriptions: set[str] = set()

    async def subscribe(self, subscription: str, *, max_in_flight: int = 10) -> Subscriber:
        subscriber = await self._open(subscription, max_in_flight=max_in_flight)
        assert subscriber.unavailable_reason() is None
        return subscriber

    def make_subscriber(self, subscription: str, limits: Limits) -> Subscriber:
        self._subscriptions.add(subscription)
        return RabbitMQSubscriber(
            url=self._proxy.url,
            exchange=self._exchange,
            exchange_type="fanout",
            subscription=self.name(subscription),
            reconnect=AT_ONCE,
            retry=AT_ONCE,
            **limits,
        )

    async def publish(self, events: Sequence[Event], *, mode: Mode = Mode.STRUCTURED) -> None:
        publisher = RabbitMQPublisher(
            url=self._url, exchange=self._exchange, exchange_type="fanout", mode=mode, reconnect=AT_ONCE
        )
        await publish(publisher, events)

    async def publish_junk(self, body: bytes) -> None:
        async with await aio_pika.connect(self._url, timeout=contract.TIMEOUT.total_seconds()) as connection:
            channel = await connection.channel()
            exchange = await channel.get_exchange(self._exchange)
            await exchange.publish(aio_pika.Message(body), routing_key="")

    def dead_letters(self, subscription: str) -> DeadLetters:
        return RabbitMQDeadLetters(url=self._url, subscription=self.name(subscription))

    async def remove(self) -> None:
        await super().remove()
        async with await aio_pika.connect(self._url, timeout=contract.TIMEOUT.total_seconds()) as connection:
            channel = await connection.channel()
            for subscription in self._subscriptions:
                await channel.queue_delete(self.name(subscription))
                await channel.queue_delete(self.name(subscription) + DEAD_LETTERS_SUFFIX)
            await channel.exchange_delete(self._exchange)


class PubSubHarness(ProxiedHarness):
    def __init__(self, host: str, proxy: BrokerProxy, topic: str) -> None:
        super().__init__(proxy)
        self._host = host
        self._topic = topic

    def make_subscriber(self, subscription: str, limits: Limits) -> Subscriber:
        return PubSubSubscriber(
            project_id=pubsub.PROJECT,
            topic=self._topic,
            subscription=self.name(subscription),
            create_topic=True,
            emulator_host=f"127.0.0.1:{self._proxy.port}",
            lease=MIN_LEASE,
            pull_timeout=SHORT_PULL,
            reconnect=AT_ONCE,
            retry=AT_ONCE,
            **limits,
        )

    async def publish(self, events: Sequence[Event], *, mode: Mode = Mode.STRUCTURED) -> None:
        publisher = PubSubPublisher(
            project_id=pubsub.PROJECT, topic=self._topic, mode=mode, emulator_host=self._host
        )
        await publish(publisher, events)

    async def publish_junk(self, body: bytes) -> None:
        await pubsub.publish_body(self._host, self._topic, body)

    def dead_letters(self, subscription: str) -> DeadLetters:
        return PubSubDeadLetters(
            project_id=pubsub.PROJECT,
            topic=self._topic,
            subscription=self.name(subscription),
            emulator_host=self._host,
            pull_timeout=LETTERS_PULL,
        )


class TestMemorySubscriber(contract.SubscriberContract, DeadLettersContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestRabbitMQSubscriber(contract.SubscriberContract, DeadLettersContract, contract.ConnectedContract):
    @pytest.fixture
    async def harness(self, rabbitmq_url: str) -> AsyncIterator[RabbitMQHarness]:
        async with BrokerProxy(rabbitmq_url) as proxy:
            harness = RabbitMQHarness(rabbitmq_url, proxy)
            yield harness
            await harness.remove()


class TestPubSubSubscriber(contract.SubscriberContract, DeadLettersContract, contract.ConnectedContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[PubSubHarness]:
        host = pubsub.emulator_host()
        async with BrokerProxy(f"tcp://{host}") as proxy, pubsub.open_inbox(host) as inbox:
            harness = PubSubHarness(host, proxy, inbox.topic)
            yield harness
            await harness.remove()

"""The RabbitMQ subscriber beyond the contract: declarations, foreign messages, restarts."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Unpack

import aio_pika
import msgspec
import pamqp.frame
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.abc import ChannelFrame, DeliveredMessage
from pamqp.body import ContentBody
from pamqp.commands import Basic

from sentinel.drivers.event_messages import DecodedMessage
from sentinel.drivers.rabbitmq import received_messages
from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, Message
from sentinel.runtime.log import get_logger
from tests.contract.connection import opened
from tests.contract.subscriber import SubscriberOptions, ack_next, take
from tests.support.brokers.rabbitmq import (
    AT_ONCE,
    BrokerProxy,
    PrivateRabbitMQ,
    eventually,
    make_events,
    unique,
    url_of,
)

TIMEOUT = timedelta(seconds=60)


class RabbitMQOptions(SubscriberOptions, total=False):
    url: str
    exchange_type: str
    routing_key: str


class Topology:
    """An exchange and a queue with unique names, and a channel to prepare and inspect them."""

    def __init__(self, url: str, channel: AbstractChannel) -> None:
        self.url = url
        self.channel = channel
        self.exchange = unique("exchange")
        self.queue = unique("queue")
        self.dead_letters = self.queue + DEAD_LETTERS_SUFFIX

    def subscriber(self, **changes: Unpack[RabbitMQOptions]) -> RabbitMQSubscriber:
        """Return a subscriber of the queue that reconnects at once, by default from a fanout exchange."""
        options: RabbitMQOptions = {
            "url": self.url,
            "exchange_type": "fanout",
            "max_in_flight": 10,
            "max_hold": timedelta(minutes=10),
            **changes,
        }
        return RabbitMQSubscriber(
            exchange=self.exchange, subscription=self.queue, reconnect=AT_ONCE, retry=AT_ONCE, **options
        )

    async def publish(self, count: int, *, exchange_type: str = "fanout", routing_key: str = "") -> None:
        publisher = RabbitMQPublisher(
            url=self.url, exchange=self.exchange, exchange_type=exchange_type, routing_key=routing_key
        )
        async with opened(publisher):
            await publisher.publish(make_events(count), deadline=TIMEOUT)

    async def send(
        self,
        body: bytes,
        *,
        headers: Mapping[str, str | list[str]] | None = None,
        **properties: str | int | datetime,
    ) -> None:
        """Publish a foreign message to the queue."""
        message = aio_pika.Message(body, headers=dict(headers or {}), **properties)  # type: ignore[arg-type]  # each matches its own type
        await self.channel.default_exchange.publish(message, routing_key=self.queue)

    async def send_raw(self, queue: str, body: bytes, *, flags: int, properties: bytes) -> None:
        """Publish a message with raw property bytes, which our libraries would not encode."""
        channel = await self.channel.get_underlay_channel()
        connection = channel.connection
        sending = await connection.channel(publisher_confirms=False)
        number = sending.number
        payload = struct.pack(">HHQH", Basic.frame_id, 0, len(body), flags) + properties
        frames = [
            pamqp.frame.marshal(Basic.Publish(routing_key=queue), number),
            struct.pack(">BHI", 2, number, len(payload)) + payload + b"\xce",
            pamqp.frame.marshal(ContentBody(body), number),
        ]
        await connection.write_queue.put(ChannelFrame(b"".join(frames), False, None))
        await sending.close()  # the broker confirms this after it has received the message

    async def get(self, queue: str) -> AbstractIncomingMessage:
        """Get the next message, which must be there."""
        declared = await self.channel.get_queue(queue)
        message = await declared.get(no_ack=True, timeout=TIMEOUT.total_seconds())
        assert message is not None
        return message

    async def count(self, queue: str) -> int:
        declared = await self.channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def remove(self) -> None:
        await self.channel.queue_delete(self.queue)
        await self.channel.queue_delete(self.dead_letters)
        await self.channel.exchange_delete(self.exchange)


@asynccontextmanager
async def topology_on(url: str) -> AsyncIterator[Topology]:
    async with await aio_pika.connect(url, timeout=TIMEOUT.total_seconds()) as connection:
        topology = Topology(url, await connection.channel())
        yield topology
        if not topology.channel.is_closed:
            await topology.remove()


@pytest.fixture
async def topology(rabbitmq_url: str) -> AsyncIterator[Topology]:
    async with topology_on(rabbitmq_url) as topology:
        yield topology


class TestDeclaring:
    @pytest.mark.parametrize(
        ("exchange_type", "routing_key"),
        [("fanout", ""), ("topic", "region.us-east"), ("topic", ""), ("direct", "events"), ("headers", "")],
    )
    async def test_events_arrive_through_every_type_of_exchange(
        self, topology: Topology, exchange_type: str, routing_key: str
    ) -> None:
        async with opened(topology.subscriber(exchange_type=exchange_type, routing_key=routing_key)) as subscriber:
            await topology.publish(3, exchange_type=exchange_type, routing_key=routing_key)

            assert await ack_next(subscriber, 3) == ["event-0", "event-1", "event-2"]

    async def test_the_queues_are_durable(self, topology: Topology) -> None:
        async with opened(topology.subscriber()):
            pass

        # Declaring an existing queue compares it: another durability would be refused.
        await topology.channel.declare_queue(topology.queue, durable=True)
        await topology.channel.declare_queue(topology.dead_letters, durable=True)

    async def test_an_exchange_of_another_type_is_a_misconfiguration(self, topology: Topology) -> None:
        await topology.channel.declare_exchange(topology.exchange, "topic", durable=True)

        with pytest.raises(Misconfigured, match=f"exchange '{topology.exchange}': expected a durable one"):
            await topology.subscriber(exchange_type="fanout").open()

    async def test_a_queue_that_is_not_durable_is_a_misconfiguration(self, topology: Topology) -> None:
        await topology.channel.declare_queue(topology.queue, durable=False)

        with pytest.raises(Misconfigured, match=f"queue '{topology.queue}': expected a durable one"):
            await topology.subscriber().open()

    async def test_an_existing_queue_with_limits_is_used(self, topology: Topology) -> None:
        await topology.channel.declare_queue(topology.queue, durable=True, arguments={"x-max-length": 1_000})

        async with opened(topology.subscriber()) as subscriber:
            await topology.publish(1)

            assert await ack_next(subscriber, 1) == ["event-0"]

    async def test_the_delivery_count_of_a_quorum_queue_is_used(self, topology: Topology) -> None:
        await topology.channel.declare_queue(topology.queue, durable=True, arguments={"x-queue-type": "quorum"})
        async with opened(topology.subscriber()) as gone:
            await topology.publish(1)
            for _ in range(2):
                [delivery] = await take(gone, 1)
                await delivery.nack()

        async with opened(topology.subscriber()) as subscriber:
            [delivery] = await take(subscriber, 1)

        # It may have been in transit to the first subscriber once more.
        assert delivery.attempts >= 3

    async def test_a_deleted_queue_is_declared_again(self, topology: Topology) -> None:
        changes: list[Connectivity] = []
        async with opened(topology.subscriber(observe=changes.append)) as subscriber:
            await topology.channel.queue_delete(topology.queue)
            await eventually(lambda: len(changes) == 3)
            await topology.publish(1)

            assert await ack_next(subscriber, 1) == ["event-0"]
        assert [change.is_connected for change in changes] == [True, False, True]
        assert (
            changes[1].reason == f"connection lost: the broker cancelled the consumer of queue '{topology.queue}'"
        )

    async def test_a_deleted_dead_letter_queue_is_declared_again(self, topology: Topology) -> None:
        async with opened(topology.subscriber()) as subscriber:
            await topology.publish(1)
            [delivery] = await take(subscriber, 1)
            await topology.channel.queue_delete(topology.dead_letters)

            await delivery.dead_letter("no")

        assert await topology.count(topology.dead_letters) == 1

    def test_max_in_flight_above_the_protocols_limit_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="max_in_flight: expected at most 65535, got 65536"):
            Topology("amqp://127.0.0.1", None).subscriber(max_in_flight=65_536)  # type: ignore[arg-type]  # unused


class TestMessages:
    async def test_an_event_without_headers_is_read_from_its_body(self, topology: Topology) -> None:
        event = {"specversion": "1.0", "id": "a-1", "source": "s", "type": "t", "subject": "cls-1", "data": {}}

        async with opened(topology.subscriber()) as subscriber:
            await topology.send(msgspec.json.encode(event))
            [delivery] = await take(subscriber, 1)

        assert delivery.message.attributes["subject"] == "cls-1"

    async def test_the_published_time_is_as_precise_as_possible(self, topology: Topology) -> None:
        time = datetime(2026, 3, 1, 12, tzinfo=UTC)
        precise = time + timedelta(microseconds=250_000)

        async with opened(topology.subscriber()) as subscriber:
            await topology.publish(1)
            await topology.send(b"", timestamp=time)
            await topology.send(b"")
            times = [delivery.published_time for delivery in await take(subscriber, 3)]

        assert times == [precise, time, None]

    async def test_a_dead_letter_drops_properties_with_side_effects(self, topology: Topology) -> None:
        async with opened(topology.subscriber()) as subscriber:
            await topology.send(
                b"junk",
                headers={"CC": ["nowhere"], "kept": "yes"},
                expiration=timedelta(hours=1).seconds,
                user_id="guest",
                correlation_id="c-1",
                content_type="text/plain",
            )
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("not an event")

        letter = await topology.get(topology.dead_letters)
        assert letter.headers["kept"] == "yes"
        assert "CC" not in letter.headers
        assert (letter.expiration, letter.user_id) == (None, None)
        assert (letter.correlation_id, letter.content_type) == ("c-1", "text/plain")
        assert letter.delivery_mode == aio_pika.DeliveryMode.PERSISTENT

    async def test_headers_that_fill_a_frame_are_replaced_by_the_reason(self, topology: Topology) -> None:
        changes: list[Connectivity] = []
        async with opened(topology.subscriber(observe=changes.append)) as subscriber:
            await topology.send(b"junk", headers={"padding": "x" * 130_900})
            [delivery] = await take(subscriber, 1)

            await delivery.dead_letter("too much")

        letter = await topology.get(topology.dead_letters)
        assert letter.headers["dead-letter-reason"] == "too much"
        assert "padding" not in letter.headers
        assert [change.is_connected for change in changes] == [True]

    async def test_a_replay_has_the_original_properties(self, topology: Topology) -> None:
        async with opened(topology.subscriber()) as subscriber:
            await topology.publish(1)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")

        await RabbitMQDeadLetters(url=topology.url, subscription=topology.queue).replay()

        again = await topology.get(topology.queue)
        assert again.message_id == "event-0"
        assert again.type == "com.redhat.hyperfleet.cluster.reconcile"
        assert again.headers.pop("replayed-time")
        assert {name.partition(":")[0] for name in again.headers} == {"cloudEvents"}

    async def test_events_with_the_same_id_are_all_delivered(self, topology: Topology) -> None:
        async with opened(topology.subscriber()) as subscriber:
            for body in (b"one", b"other"):
                await topology.send(body, headers={"cloudEvents:id": "same"})

            taken = await take(subscriber, 2)

        assert sorted(delivery.message.body for delivery in taken) == [b"one", b"other"]


HEADERS, TIMESTAMP = Basic.Properties.flags["headers"], Basic.Properties.flags["timestamp"]
NANOSECONDS = struct.pack(">Q", 1_790_000_000_000_000_000)


def header_table(*entries: bytes) -> bytes:
    encoded = b"".join(entries)
    return struct.pack(">I", len(encoded)) + encoded


def text_header(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + b"S" + struct.pack(">I", len(value)) + value


UNUSUAL = {
    "a timestamp in nanoseconds": (TIMESTAMP, NANOSECONDS),
    "a time in nanoseconds among the headers": (HEADERS, header_table(b"\x01tT" + NANOSECONDS)),
    "a name that is not UTF-8": (HEADERS, header_table(text_header(b"\xff", b"x"))),
    "a string that is not UTF-8": (HEADERS, header_table(text_header(b"x", b"\xff\xfe"))),
    "a large number": (HEADERS, header_table(b"\x01xd" + struct.pack(">d", 1e300))),
    "a number out of range": (HEADERS, header_table(b"\x01xl" + b"\xff" * 8)),
}


class TestUnusualProperties:
    """Properties that RabbitMQ accepts and pamqp cannot decode, or cannot encode again."""

    @pytest.mark.parametrize(("flags", "properties"), UNUSUAL.values(), ids=UNUSUAL.keys())
    async def test_a_message_can_be_dead_lettered_and_replayed(
        self, topology: Topology, flags: int, properties: bytes
    ) -> None:
        changes: list[Connectivity] = []
        letters = RabbitMQDeadLetters(url=topology.url, subscription=topology.queue)
        async with opened(topology.subscriber(max_in_flight=1, observe=changes.append)) as subscriber:
            await topology.send_raw(topology.queue, b"unusual", flags=flags, properties=properties)
            [first] = await take(subscriber, 1)
            await first.dead_letter("first")
            await topology.publish(1)
            assert await ack_next(subscriber, 1) == ["event-0"]
            await letters.replay()
            [again] = await take(subscriber, 1)
            await again.dead_letter("second")

        [letter] = await letters.peek(limit=10)
        assert (first.message.body, again.message.body) == (b"unusual", b"unusual")
        assert letter.reason == "second"
        assert [change.is_connected for change in changes] == [True]

    async def test_only_headers_that_cannot_be_encoded_are_lost(self, topology: Topology) -> None:
        entries = header_table(
            text_header(b"cloudEvents:id", b"a-1"), text_header(b"x", b"\xff"), b"\x01tT" + NANOSECONDS
        )
        async with opened(topology.subscriber()) as subscriber:
            await topology.send_raw(topology.queue, b"{}", flags=HEADERS, properties=entries)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")

        letter = await topology.get(topology.dead_letters)
        assert delivery.message.attributes["id"] == "a-1"
        assert letter.headers["cloudEvents:id"] == "a-1"
        assert letter.headers.keys() & {"x", "t"} == set()

    async def test_foreign_dead_letters_are_listed_replayed_and_dropped(self, topology: Topology) -> None:
        letters = RabbitMQDeadLetters(url=topology.url, subscription=topology.queue)
        async with opened(topology.subscriber()):
            pass
        await topology.send_raw(topology.dead_letters, b"one", flags=TIMESTAMP, properties=NANOSECONDS)
        await topology.send_raw(
            topology.dead_letters, b"other", flags=HEADERS, properties=header_table(text_header(b"\xff", b""))
        )

        bodies = [letter.message.body for letter in await letters.peek(limit=10)]
        replayed = await letters.replay((await letters.peek(limit=1))[0].id)
        dropped = await letters.drop()

        assert bodies == [b"one", b"other"]
        assert (replayed, dropped) == (1, 1)

    def test_a_message_that_cannot_be_decoded_has_no_attributes(self) -> None:
        broken = DeliveredMessage(Basic.Deliver(), None, b"body", None)  # type: ignore[arg-type]  # no header

        assert received_messages.decode(broken, log=get_logger("test")) == DecodedMessage(Message(b"body", "", {}))


class TestDeadLetters:
    async def test_peeking_keeps_the_order_of_dead_letters(self, topology: Topology) -> None:
        letters = RabbitMQDeadLetters(url=topology.url, subscription=topology.queue)
        async with opened(topology.subscriber(max_in_flight=1)) as subscriber:
            await topology.publish(5)
            for _ in range(5):
                [delivery] = await take(subscriber, 1)
                await delivery.dead_letter("no")

        shown = [[letter.id for letter in await letters.peek(limit=limit)] for limit in (2, 5)]
        await letters.drop("event-2")
        left = [letter.id for letter in await letters.peek(limit=10)]

        assert shown == [["event-0", "event-1"], [f"event-{number}" for number in range(5)]]
        assert left == ["event-0", "event-1", "event-3", "event-4"]

    async def test_a_replay_to_a_missing_queue_loses_nothing(self, topology: Topology) -> None:
        letters = RabbitMQDeadLetters(url=topology.url, subscription=topology.queue)
        async with opened(topology.subscriber()) as subscriber:
            await topology.publish(1)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")
        await topology.channel.queue_delete(topology.queue)

        with pytest.raises(Misconfigured, match=f"queue '{topology.queue}' does not exist"):
            await letters.replay()

        assert len(await letters.peek(limit=10)) == 1

    async def test_an_unreachable_broker_is_named_without_its_password(self) -> None:
        async with BrokerProxy("amqp://guest:guest@127.0.0.1:5672") as proxy:
            await proxy.cut()
            letters = RabbitMQDeadLetters(url=url_of(proxy.port, user=("guest", "pa55word")), subscription="dns")

            with pytest.raises(Unavailable, match=f"127.0.0.1:{proxy.port}: ") as caught:
                await letters.peek(limit=1)

        assert "pa55word" not in str(caught.value)


class TestConnection:
    async def test_a_failure_is_observed_once_and_without_the_password(self, topology: Topology) -> None:
        changes: list[Connectivity] = []
        async with BrokerProxy(topology.url) as proxy:
            await proxy.cut()
            url = url_of(proxy.port, user=("guest", "pa55word"))
            async with opened(topology.subscriber(url=url, observe=changes.append)) as subscriber:
                attempts = proxy.accepted
                await proxy.accept()
                await eventually(lambda: proxy.accepted > attempts + 3)
                unavailable_reason = subscriber.unavailable_reason()

        assert unavailable_reason is not None
        assert "pa55word" not in unavailable_reason + repr(changes)
        assert len(changes) <= 2

    async def test_a_subscriber_that_was_never_opened_can_be_closed(self, topology: Topology) -> None:
        subscriber = topology.subscriber()

        assert subscriber.unavailable_reason() == "the subscriber is not open"
        await subscriber.close()

    async def test_a_broker_that_never_answers_does_not_block_close(self, topology: Topology) -> None:
        async with BrokerProxy(topology.url) as proxy:
            subscriber = topology.subscriber(url=proxy.url)
            await subscriber.open()
            proxy.hold_responses()

            async with asyncio.timeout(TIMEOUT.total_seconds()):
                await subscriber.close()


class TestNode:
    async def test_holding_a_message_too_long_does_not_close_the_channel(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        limit = timedelta(seconds=1)
        changes: list[Connectivity] = []
        async with (
            private_rabbitmq.consumer_timeout(limit),
            topology_on(private_rabbitmq.url) as topology,
            opened(topology.subscriber(max_hold=limit / 4, observe=changes.append)) as subscriber,
        ):
            await topology.publish(1)
            [delivery] = await take(subscriber, 1)
            another = asyncio.ensure_future(anext(subscriber.deliveries()))

            # Another consumer that holds a message shows when the timeout is over.
            await wait_for_consumer_timeout(private_rabbitmq.url)
            is_handed_out_twice = another.done()
            await delivery.ack()
            await topology.publish(1)
            await asyncio.wait_for(another, TIMEOUT.total_seconds())

        assert not is_handed_out_twice
        assert [change.is_connected for change in changes] == [True]

    @pytest.mark.parametrize("is_orderly", [True, False])
    async def test_nothing_is_lost_when_the_broker_is_restarted(
        self, private_rabbitmq: PrivateRabbitMQ, is_orderly: bool
    ) -> None:
        async with (
            topology_on(private_rabbitmq.url) as topology,
            opened(topology.subscriber(max_in_flight=4)) as subscriber,
        ):
            await topology.publish(10)
            done, failed, lasting = await take(subscriber, 3)
            await done.ack()

            await (private_rabbitmq.stop() if is_orderly else private_rabbitmq.kill())
            await private_rabbitmq.start()
            await eventually(lambda: subscriber.unavailable_reason() is None, timeout=TIMEOUT)
            await failed.nack()
            expected = {f"event-{number}" for number in range(10)}
            expected -= {delivery.message.attributes["id"] for delivery in (done, lasting)}
            received: list[str] = []
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                while not expected <= set(received):
                    received += await ack_next(subscriber, 1)
            await lasting.ack()

        assert lasting.message.attributes["id"] not in received
        if is_orderly:
            # A killed broker may not have stored the ack.
            assert set(received) == expected

    async def test_a_user_who_may_only_read_uses_existing_queues(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        user = await private_rabbitmq.add_user(password="pa55word", configure="^$")
        url = url_of(private_rabbitmq.port, user=(user, "pa55word"))
        async with topology_on(private_rabbitmq.url) as topology:
            with pytest.raises(Misconfigured, match=f"exchange '{topology.exchange}'"):
                await topology.subscriber(url=url).open()
            async with opened(topology.subscriber()):
                pass

            async with opened(topology.subscriber(url=url)) as subscriber:
                await topology.publish(1)

                assert await ack_next(subscriber, 1) == ["event-0"]


async def wait_for_consumer_timeout(url: str) -> None:
    """Hold a message until the broker closes the channel."""
    async with await aio_pika.connect(url, timeout=TIMEOUT.total_seconds()) as connection:
        channel = await connection.channel()
        closed = asyncio.Event()
        channel.close_callbacks.add(lambda *_: closed.set())
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(b""), routing_key=queue.name)
        assert await queue.get(timeout=TIMEOUT.total_seconds()) is not None
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await closed.wait()

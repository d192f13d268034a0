"""The RabbitMQ subscriber beyond the contract: what it declares, what others have declared, what comes in."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aio_pika
import msgspec
import pamqp.frame
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.abc import ChannelFrame, DeliveredMessage
from pamqp.body import ContentBody
from pamqp.commands import Basic

from sentinel.drivers.event_messages import Received
from sentinel.drivers.rabbitmq import received_messages
from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.publisher import Connectivity, Outcome
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, Message
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import get_logger
from tests.contract.subscriber import settle_all, take
from tests.support.brokers.rabbitmq import PrivateRabbitMQ, Proxy, eventually, make_events, unique, url_of

AMPLE = timedelta(seconds=60)
AT_ONCE = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=50))


class Scene:
    """An exchange and a queue with names of this test's own, and a channel to prepare and inspect them."""

    def __init__(self, url: str, channel: AbstractChannel) -> None:
        self.url = url
        self.channel = channel
        self.exchange = unique("exchange")
        self.queue = unique("queue")
        self.dead_letters = self.queue + DEAD_LETTERS_SUFFIX

    def subscriber(
        self,
        *,
        url: str | None = None,
        exchange_type: str = "fanout",
        routing_key: str = "",
        max_in_flight: int = 10,
        max_hold: timedelta = timedelta(minutes=10),
        observe: Callable[[Connectivity], None] = lambda change: None,
    ) -> RabbitMQSubscriber:
        return RabbitMQSubscriber(
            url=url or self.url,
            exchange=self.exchange,
            exchange_type=exchange_type,
            routing_key=routing_key,
            subscription=self.queue,
            max_in_flight=max_in_flight,
            max_hold=max_hold,
            reconnect=AT_ONCE,
            retry=AT_ONCE,
            observe=observe,
        )

    @asynccontextmanager
    async def publisher(
        self, *, exchange_type: str = "fanout", routing_key: str = ""
    ) -> AsyncIterator[RabbitMQPublisher]:
        publisher = RabbitMQPublisher(
            url=self.url, exchange=self.exchange, exchange_type=exchange_type, routing_key=routing_key
        )
        await publisher.open()
        try:
            yield publisher
        finally:
            await publisher.close()

    async def publish(self, count: int, *, exchange_type: str = "fanout", routing_key: str = "") -> list[Outcome]:
        async with self.publisher(exchange_type=exchange_type, routing_key=routing_key) as publisher:
            return list((await publisher.publish(make_events(count), deadline=AMPLE)).outcomes)

    async def send(
        self,
        body: bytes,
        *,
        headers: Mapping[str, str | list[str]] | None = None,
        **properties: str | int | datetime,
    ) -> None:
        """Puts a message into the queue that no publisher of ours would send."""
        message = aio_pika.Message(body, headers=dict(headers or {}), **properties)  # type: ignore[arg-type]  # each fits its own
        await self.channel.default_exchange.publish(message, routing_key=self.queue)

    async def send_raw(self, queue: str, body: bytes, *, flags: int, properties: bytes) -> None:
        """Puts a message into a queue whose properties no library of ours would encode."""
        channel = await self.channel.get_underlay_channel()
        wire = channel.connection
        sending = await wire.channel(publisher_confirms=False)
        number = sending.number
        payload = struct.pack(">HHQH", Basic.frame_id, 0, len(body), flags) + properties
        frames = [
            pamqp.frame.marshal(Basic.Publish(routing_key=queue), number),
            struct.pack(">BHI", 2, number, len(payload)) + payload + b"\xce",
            pamqp.frame.marshal(ContentBody(body), number),
        ]
        await wire.write_queue.put(ChannelFrame(b"".join(frames), False, None))
        await sending.close()  # which the broker answers after it has taken the message

    async def get(self, queue: str) -> AbstractIncomingMessage:
        """The next message, which must be there."""
        held = await self.channel.get_queue(queue)
        message = await held.get(no_ack=True, timeout=AMPLE.total_seconds())
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
async def scene_on(url: str) -> AsyncIterator[Scene]:
    async with await aio_pika.connect(url, timeout=AMPLE.total_seconds()) as connection:
        scene = Scene(url, await connection.channel())
        yield scene
        if not scene.channel.is_closed:
            await scene.remove()


@pytest.fixture
async def scene(rabbitmq_url: str) -> AsyncIterator[Scene]:
    async with scene_on(rabbitmq_url) as scene:
        yield scene


@asynccontextmanager
async def opened(subscriber: RabbitMQSubscriber) -> AsyncIterator[RabbitMQSubscriber]:
    await subscriber.open()
    try:
        yield subscriber
    finally:
        await subscriber.close()


class TestDeclaring:
    @pytest.mark.parametrize(
        ("exchange_type", "routing_key"),
        [("fanout", ""), ("topic", "region.us-east"), ("topic", ""), ("direct", "events"), ("headers", "")],
    )
    async def test_whatever_the_exchange_events_arrive(
        self, scene: Scene, exchange_type: str, routing_key: str
    ) -> None:
        async with opened(scene.subscriber(exchange_type=exchange_type, routing_key=routing_key)) as subscriber:
            await scene.publish(3, exchange_type=exchange_type, routing_key=routing_key)

            assert await settle_all(subscriber, 3) == ["event-0", "event-1", "event-2"]

    async def test_the_queues_survive_a_restart_of_the_broker(self, scene: Scene) -> None:
        async with opened(scene.subscriber()):
            pass

        # To declare is to compare: another durability would be refused.
        await scene.channel.declare_queue(scene.queue, durable=True)
        await scene.channel.declare_queue(scene.dead_letters, durable=True)

    async def test_an_exchange_of_another_type_is_a_persons_business(self, scene: Scene) -> None:
        await scene.channel.declare_exchange(scene.exchange, "topic", durable=True)

        with pytest.raises(Misconfigured, match=f"exchange '{scene.exchange}': expected a durable one"):
            await scene.subscriber(exchange_type="fanout").open()

    async def test_a_queue_that_would_lose_its_messages_is_a_persons_business(self, scene: Scene) -> None:
        await scene.channel.declare_queue(scene.queue, durable=False)

        with pytest.raises(Misconfigured, match=f"queue '{scene.queue}': expected a durable one"):
            await scene.subscriber().open()

    async def test_a_queue_with_limits_of_somebody_elses_choice_is_used(self, scene: Scene) -> None:
        await scene.channel.declare_queue(scene.queue, durable=True, arguments={"x-max-length": 1_000})

        async with opened(scene.subscriber()) as subscriber:
            await scene.publish(1)

            assert await settle_all(subscriber, 1) == ["event-0"]

    async def test_a_quorum_queue_tells_how_often_it_has_tried(self, scene: Scene) -> None:
        await scene.channel.declare_queue(scene.queue, durable=True, arguments={"x-queue-type": "quorum"})
        async with opened(scene.subscriber()) as gone:
            await scene.publish(1)
            for _ in range(2):
                [delivery] = await take(gone, 1)
                await delivery.nack()

        async with opened(scene.subscriber()) as subscriber:
            [delivery] = await take(subscriber, 1)

        # It may have been on its way to the first subscriber once more.
        assert delivery.attempts >= 3

    async def test_a_queue_that_is_taken_away_is_made_again(self, scene: Scene) -> None:
        changes: list[Connectivity] = []
        async with opened(scene.subscriber(observe=changes.append)) as subscriber:
            await scene.channel.queue_delete(scene.queue)
            await eventually(lambda: len(changes) == 3)
            await scene.publish(1)

            assert await settle_all(subscriber, 1) == ["event-0"]
        assert [change.is_connected for change in changes] == [True, False, True]
        assert changes[1].reason == f"connection lost: queue '{scene.queue}' was taken away"

    async def test_dead_letters_whose_queue_was_taken_away_are_kept_all_the_same(self, scene: Scene) -> None:
        async with opened(scene.subscriber()) as subscriber:
            await scene.publish(1)
            [delivery] = await take(subscriber, 1)
            await scene.channel.queue_delete(scene.dead_letters)

            await delivery.dead_letter("no")

        assert await scene.count(scene.dead_letters) == 1

    def test_more_than_the_protocol_can_express_is_refused(self) -> None:
        with pytest.raises(ValueError, match="max_in_flight: expected at most 65535, got 65536"):
            Scene("amqp://127.0.0.1", None).subscriber(max_in_flight=65_536)  # type: ignore[arg-type]  # unused


class TestMessages:
    async def test_an_event_without_headers_is_read_from_its_body(self, scene: Scene) -> None:
        event = {"specversion": "1.0", "id": "a-1", "source": "s", "type": "t", "subject": "cls-1", "data": {}}

        async with opened(scene.subscriber()) as subscriber:
            await scene.send(msgspec.json.encode(event))
            [delivery] = await take(subscriber, 1)

        assert delivery.message.attributes["subject"] == "cls-1"

    async def test_the_time_of_publishing_is_as_exact_as_it_can_be(self, scene: Scene) -> None:
        moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
        exact = moment + timedelta(microseconds=250_000)

        async with opened(scene.subscriber()) as subscriber:
            await scene.publish(1)
            await scene.send(b"", timestamp=moment)
            await scene.send(b"")
            times = [delivery.published_time for delivery in await take(subscriber, 3)]

        assert times == [exact, moment, None]

    async def test_of_a_dead_letter_nothing_acts_up_again(self, scene: Scene) -> None:
        async with opened(scene.subscriber()) as subscriber:
            await scene.send(
                b"junk",
                headers={"CC": ["nowhere"], "kept": "yes"},
                expiration=timedelta(hours=1).seconds,
                user_id="guest",
                correlation_id="c-1",
                content_type="text/plain",
            )
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("not an event")

        letter = await scene.get(scene.dead_letters)
        assert letter.headers["kept"] == "yes"
        assert "CC" not in letter.headers
        assert (letter.expiration, letter.user_id) == (None, None)
        assert (letter.correlation_id, letter.content_type) == ("c-1", "text/plain")
        assert letter.delivery_mode == aio_pika.DeliveryMode.PERSISTENT

    async def test_headers_that_fill_a_frame_make_room_for_the_reason(self, scene: Scene) -> None:
        changes: list[Connectivity] = []
        async with opened(scene.subscriber(observe=changes.append)) as subscriber:
            await scene.send(b"junk", headers={"padding": "x" * 130_900})
            [delivery] = await take(subscriber, 1)

            await delivery.dead_letter("too much")

        letter = await scene.get(scene.dead_letters)
        assert letter.headers["dead-letter-reason"] == "too much"
        assert "padding" not in letter.headers
        assert [change.is_connected for change in changes] == [True]

    async def test_a_replay_is_sent_as_it_was_first(self, scene: Scene) -> None:
        async with opened(scene.subscriber()) as subscriber:
            await scene.publish(1)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")

        await RabbitMQDeadLetters(url=scene.url, subscription=scene.queue).replay()

        again = await scene.get(scene.queue)
        assert again.message_id == "event-0"
        assert again.type == "com.redhat.hyperfleet.cluster.reconcile"
        assert again.headers.pop("replayed-time")
        assert {name.partition(":")[0] for name in again.headers} == {"cloudEvents"}

    async def test_events_that_share_an_id_are_all_delivered(self, scene: Scene) -> None:
        async with opened(scene.subscriber()) as subscriber:
            for body in (b"one", b"other"):
                await scene.send(body, headers={"cloudEvents:id": "same"})

            taken = await take(subscriber, 2)

        assert sorted(delivery.message.body for delivery in taken) == [b"one", b"other"]


HEADERS, TIMESTAMP = Basic.Properties.flags["headers"], Basic.Properties.flags["timestamp"]
NANOSECONDS = struct.pack(">Q", 1_790_000_000_000_000_000)


def headers(*entries: bytes) -> bytes:
    encoded = b"".join(entries)
    return struct.pack(">I", len(encoded)) + encoded


def text(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + b"S" + struct.pack(">I", len(value)) + value


STRANGE = {
    "a timestamp in nanoseconds": (TIMESTAMP, NANOSECONDS),
    "a time in nanoseconds among the headers": (HEADERS, headers(b"\x01tT" + NANOSECONDS)),
    "a name that is not UTF-8": (HEADERS, headers(text(b"\xff", b"x"))),
    "a text that is not UTF-8": (HEADERS, headers(text(b"x", b"\xff\xfe"))),
    "a large number": (HEADERS, headers(b"\x01xd" + struct.pack(">d", 1e300))),
    "a number beyond all": (HEADERS, headers(b"\x01xl" + b"\xff" * 8)),
}


class TestStrangeProperties:
    """What RabbitMQ passes on, and the library under us cannot decode, or cannot encode again."""

    @pytest.mark.parametrize(("flags", "properties"), STRANGE.values(), ids=STRANGE.keys())
    async def test_a_message_with_strange_properties_blocks_nobody_and_can_be_given_up_and_replayed(
        self, scene: Scene, flags: int, properties: bytes
    ) -> None:
        changes: list[Connectivity] = []
        letters = RabbitMQDeadLetters(url=scene.url, subscription=scene.queue)
        async with opened(scene.subscriber(max_in_flight=1, observe=changes.append)) as subscriber:
            await scene.send_raw(scene.queue, b"strange", flags=flags, properties=properties)
            [strange] = await take(subscriber, 1)
            await strange.dead_letter("no event")
            await scene.publish(1)
            assert await settle_all(subscriber, 1) == ["event-0"]
            await letters.replay()
            [again] = await take(subscriber, 1)
            await again.dead_letter("still none")

        [letter] = await letters.peek(limit=10)
        assert (strange.message.body, again.message.body) == (b"strange", b"strange")
        assert letter.reason == "still none"
        assert [change.is_connected for change in changes] == [True]

    async def test_of_strange_headers_only_those_are_lost_that_cannot_be_written_again(self, scene: Scene) -> None:
        entries = headers(text(b"cloudEvents:id", b"a-1"), text(b"x", b"\xff"), b"\x01tT" + NANOSECONDS)
        async with opened(scene.subscriber()) as subscriber:
            await scene.send_raw(scene.queue, b"{}", flags=HEADERS, properties=entries)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")

        letter = await scene.get(scene.dead_letters)
        assert delivery.message.attributes["id"] == "a-1"
        assert letter.headers["cloudEvents:id"] == "a-1"
        assert letter.headers.keys() & {"x", "t"} == set()

    async def test_dead_letters_that_others_have_put_there_are_listed_replayed_and_dropped(
        self, scene: Scene
    ) -> None:
        letters = RabbitMQDeadLetters(url=scene.url, subscription=scene.queue)
        async with opened(scene.subscriber()):
            pass
        await scene.send_raw(scene.dead_letters, b"one", flags=TIMESTAMP, properties=NANOSECONDS)
        await scene.send_raw(scene.dead_letters, b"other", flags=HEADERS, properties=headers(text(b"\xff", b"")))

        bodies = [letter.message.body for letter in await letters.peek(limit=10)]
        replayed = await letters.replay((await letters.peek(limit=1))[0].id)
        dropped = await letters.drop()

        assert bodies == [b"one", b"other"]
        assert (replayed, dropped) == (1, 1)

    def test_a_message_that_our_own_reading_fails_on_is_one_without_attributes(self) -> None:
        faulty = DeliveredMessage(Basic.Deliver(), None, b"body", None)  # type: ignore[arg-type]  # the fault

        assert received_messages.receive(faulty, log=get_logger("test")) == Received(Message(b"body", "", {}))


class TestDeadLetters:
    async def test_dead_letters_keep_their_order_however_often_they_are_looked_at(self, scene: Scene) -> None:
        letters = RabbitMQDeadLetters(url=scene.url, subscription=scene.queue)
        async with opened(scene.subscriber(max_in_flight=1)) as subscriber:
            await scene.publish(5)
            for _ in range(5):
                [delivery] = await take(subscriber, 1)
                await delivery.dead_letter("no")

        shown = [[letter.id for letter in await letters.peek(limit=limit)] for limit in (2, 5)]
        await letters.drop("event-2")
        left = [letter.id for letter in await letters.peek(limit=10)]

        assert shown == [["event-0", "event-1"], [f"event-{number}" for number in range(5)]]
        assert left == ["event-0", "event-1", "event-3", "event-4"]

    async def test_a_replay_to_a_queue_that_is_gone_loses_nothing(self, scene: Scene) -> None:
        letters = RabbitMQDeadLetters(url=scene.url, subscription=scene.queue)
        async with opened(scene.subscriber()) as subscriber:
            await scene.publish(1)
            [delivery] = await take(subscriber, 1)
            await delivery.dead_letter("no")
        await scene.channel.queue_delete(scene.queue)

        with pytest.raises(Misconfigured, match=f"queue '{scene.queue}' does not exist"):
            await letters.replay()

        assert len(await letters.peek(limit=10)) == 1

    async def test_a_broker_that_cannot_be_reached_is_named_without_its_password(self) -> None:
        async with Proxy("amqp://guest:guest@127.0.0.1:5672") as proxy:
            await proxy.cut()
            letters = RabbitMQDeadLetters(url=url_of(proxy.port, user=("guest", "pa55word")), subscription="dns")

            with pytest.raises(Unavailable, match=f"127.0.0.1:{proxy.port}: ") as caught:
                await letters.peek(limit=1)

        assert "pa55word" not in str(caught.value)


class TestConnection:
    async def test_trouble_is_told_once_and_without_the_password(self, scene: Scene) -> None:
        changes: list[Connectivity] = []
        async with Proxy(scene.url) as proxy:
            await proxy.cut()
            url = url_of(proxy.port, user=("guest", "pa55word"))
            async with opened(scene.subscriber(url=url, observe=changes.append)) as subscriber:
                attempts = proxy.connections
                await proxy.heal()
                await eventually(lambda: proxy.connections > attempts + 3)
                trouble = subscriber.trouble()

        assert trouble is not None
        assert "pa55word" not in trouble + repr(changes)
        assert len(changes) <= 2

    async def test_a_subscriber_that_was_never_opened_is_in_trouble_and_closes(self, scene: Scene) -> None:
        subscriber = scene.subscriber()

        assert subscriber.trouble() == "the subscriber is not open"
        await subscriber.close()

    async def test_a_broker_that_does_not_answer_does_not_keep_closing_waiting(self, scene: Scene) -> None:
        async with Proxy(scene.url) as proxy:
            subscriber = scene.subscriber(url=proxy.url)
            await subscriber.open()
            proxy.hold_answers()

            async with asyncio.timeout(AMPLE.total_seconds()):
                await subscriber.close()


class TestNode:
    async def test_a_message_is_held_longer_than_the_broker_allows_and_the_channel_is_kept(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        longest = timedelta(seconds=1)
        changes: list[Connectivity] = []
        async with (
            private_rabbitmq.consumer_timeout(longest),
            scene_on(private_rabbitmq.url) as scene,
            opened(scene.subscriber(max_hold=longest / 4, observe=changes.append)) as subscriber,
        ):
            await scene.publish(1)
            [delivery] = await take(subscriber, 1)
            another = asyncio.ensure_future(anext(subscriber.deliveries()))

            # Somebody who holds a message as long, from now on, shows when the time is over.
            await overstay(private_rabbitmq.url)
            is_handed_out_twice = another.done()
            await delivery.ack()
            await scene.publish(1)
            await asyncio.wait_for(another, AMPLE.total_seconds())

        assert not is_handed_out_twice
        assert [change.is_connected for change in changes] == [True]

    @pytest.mark.parametrize("is_orderly", [True, False])
    async def test_nothing_is_lost_when_the_broker_is_restarted(
        self, private_rabbitmq: PrivateRabbitMQ, is_orderly: bool
    ) -> None:
        async with (
            scene_on(private_rabbitmq.url) as scene,
            opened(scene.subscriber(max_in_flight=4)) as subscriber,
        ):
            await scene.publish(10)
            done, failed, lasting = await take(subscriber, 3)
            await done.ack()

            await (private_rabbitmq.stop() if is_orderly else private_rabbitmq.kill())
            await private_rabbitmq.start()
            await eventually(lambda: subscriber.trouble() is None, timeout=AMPLE)
            await failed.nack()
            expected = {f"event-{number}" for number in range(10)}
            expected -= {delivery.message.attributes["id"] for delivery in (done, lasting)}
            received: list[str] = []
            async with asyncio.timeout(AMPLE.total_seconds()):
                while not expected <= set(received):
                    received += await settle_all(subscriber, 1)
            await lasting.ack()

        assert lasting.message.attributes["id"] not in received
        if is_orderly:
            # A broker that is killed may have had no time to note the ack.
            assert set(received) == expected

    async def test_a_user_who_may_only_read_finds_what_others_have_made(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        user = await private_rabbitmq.add_user(password="pa55word", configure="^$")
        url = url_of(private_rabbitmq.port, user=(user, "pa55word"))
        async with scene_on(private_rabbitmq.url) as scene:
            with pytest.raises(Misconfigured, match=f"exchange '{scene.exchange}'"):
                await scene.subscriber(url=url).open()
            async with opened(scene.subscriber()):
                pass

            async with opened(scene.subscriber(url=url)) as subscriber:
                await scene.publish(1)

                assert await settle_all(subscriber, 1) == ["event-0"]


async def overstay(url: str) -> None:
    """Holds a message until the broker has had enough."""
    async with await aio_pika.connect(url, timeout=AMPLE.total_seconds()) as connection:
        channel = await connection.channel()
        closed = asyncio.Event()
        channel.close_callbacks.add(lambda *_: closed.set())
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(b""), routing_key=queue.name)
        assert await queue.get(timeout=AMPLE.total_seconds()) is not None
        async with asyncio.timeout(AMPLE.total_seconds()):
            await closed.wait()

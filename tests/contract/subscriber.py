"""The contract of every `ports.subscription.Subscriber`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypedDict

import msgspec
import pytest

from sentinel.core.events import Event, Mode
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DeadLetters, Delivery, Subscriber
from tests.contract.connection import LosesConnections
from tests.contract.publisher import ids, make_event, make_events

TIMEOUT = timedelta(seconds=60)


class SubscriberOptions(TypedDict, total=False):
    """Arguments that the subscribers of all brokers take."""

    max_in_flight: int
    max_hold: timedelta
    observe: Callable[[Connectivity], None]


class SubscriberHarness(ABC):
    """A broker under test."""

    silence: timedelta = timedelta(milliseconds=50)
    """How long a test waits before it concludes that nothing is delivered."""

    @abstractmethod
    async def subscribe(self, subscription: str, *, max_in_flight: int = 10) -> Subscriber:
        """Open a subscriber that gets what is published from now on; the harness closes it at the end."""

    @abstractmethod
    async def publish(self, events: Sequence[Event], *, mode: Mode = Mode.STRUCTURED) -> None:
        """Publish, and check that the broker has confirmed."""

    @abstractmethod
    async def publish_junk(self, body: bytes) -> None:
        """Publish something that is not an event."""

    @abstractmethod
    def dead_letters(self, subscription: str) -> DeadLetters: ...


class ConnectedHarness(SubscriberHarness, LosesConnections):
    @abstractmethod
    async def subscribe_unreachable(self, subscription: str) -> Subscriber:
        """Open a subscriber of an existing subscription while connections are cut."""

    @abstractmethod
    async def subscribe_with_short_hold(self, subscription: str) -> Subscriber:
        """Open a subscriber that may hold a message only briefly."""


async def take(subscriber: Subscriber, count: int) -> list[Delivery]:
    """Take the next `count` deliveries without settling them."""
    taken: list[Delivery] = []
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        async for delivery in subscriber.deliveries():
            taken.append(delivery)
            if len(taken) == count:
                break
    return taken


async def deliver_one(harness: SubscriberHarness) -> tuple[Subscriber, Delivery]:
    """Publish the event 1 to a new subscriber and take it."""
    subscriber = await harness.subscribe("dns")
    await harness.publish([make_event(1)])
    [delivery] = await take(subscriber, 1)
    return subscriber, delivery


async def take_ids(subscriber: Subscriber, count: int) -> list[str]:
    return ids([delivery.message for delivery in await take(subscriber, count)])


async def is_silent(harness: SubscriberHarness, subscriber: Subscriber) -> bool:
    """Return whether nothing is delivered for a while."""
    waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
    done, _ = await asyncio.wait([waiting], timeout=harness.silence.total_seconds())
    waiting.cancel()
    await asyncio.wait([waiting])
    return not done


async def ack_next(subscriber: Subscriber, count: int) -> list[str]:
    """Ack the next `count` deliveries, one after the other; return their ids."""
    taken: list[str] = []
    while len(taken) < count:
        for delivery in await take(subscriber, 1):
            taken += ids([delivery.message])
            await delivery.ack()
    return taken


class SubscriberContract:
    """For every driver."""

    async def test_a_message_carries_what_was_published(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        assert ids([delivery.message]) == ["event-1"]
        assert delivery.message.attributes["subject"] == "cls-1"

    async def test_each_subscription_gets_every_message(self, harness: SubscriberHarness) -> None:
        dns = await harness.subscribe("dns")
        validation = await harness.subscribe("validation")

        await harness.publish(make_events(3))

        assert sorted(await take_ids(dns, 3)) == ["event-0", "event-1", "event-2"]
        assert sorted(await take_ids(validation, 3)) == ["event-0", "event-1", "event-2"]

    async def test_subscribers_of_one_subscription_share_its_messages(self, harness: SubscriberHarness) -> None:
        one = await harness.subscribe("dns")
        other = await harness.subscribe("dns")
        received: list[str] = []
        is_done = asyncio.Event()

        async def work(subscriber: Subscriber) -> None:
            async for delivery in subscriber.deliveries():
                received.extend(ids([delivery.message]))
                await delivery.ack()
                if len(received) == 20:
                    is_done.set()

        async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as workers:
            workers.create_task(work(one))
            workers.create_task(work(other))
            await harness.publish(make_events(20))
            await is_done.wait()
            await one.close()
            await other.close()

        assert sorted(received) == sorted(event.id for event in make_events(20))

    async def test_messages_published_before_are_not_delivered(self, harness: SubscriberHarness) -> None:
        await harness.subscribe("elsewhere")
        await harness.publish([make_event(1)])

        late = await harness.subscribe("dns")
        await harness.publish([make_event(2)])

        assert await take_ids(late, 1) == ["event-2"]

    async def test_a_subscription_keeps_messages_without_subscribers(self, harness: SubscriberHarness) -> None:
        await (await harness.subscribe("dns")).close()

        await harness.publish([make_event(1)])
        subscriber = await harness.subscribe("dns")

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_an_acked_message_is_not_delivered_again(self, harness: SubscriberHarness) -> None:
        subscriber, delivery = await deliver_one(harness)

        await delivery.ack()
        await subscriber.close()

        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_a_nacked_message_is_delivered_again(self, harness: SubscriberHarness) -> None:
        subscriber, delivery = await deliver_one(harness)

        await delivery.nack()

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_an_unsettled_message_goes_to_no_other_subscriber(self, harness: SubscriberHarness) -> None:
        holder = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await take(holder, 1)

        other = await harness.subscribe("dns")

        assert await is_silent(harness, other)

    async def test_messages_unsettled_at_close_are_delivered_again(self, harness: SubscriberHarness) -> None:
        gone = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        first, *_ = await take(gone, 3)
        await first.ack()

        await gone.close()
        other = await harness.subscribe("dns")

        expected = sorted({"event-0", "event-1", "event-2"} - set(ids([first.message])))
        assert sorted(await take_ids(other, 2)) == expected

    async def test_settling_twice_has_no_effect(self, harness: SubscriberHarness) -> None:
        subscriber, delivery = await deliver_one(harness)

        for settle in (delivery.ack, delivery.ack, delivery.nack):
            await settle()

        assert await is_silent(harness, subscriber)

    async def test_an_ack_after_a_nack_has_no_effect(self, harness: SubscriberHarness) -> None:
        subscriber, delivery = await deliver_one(harness)

        await delivery.nack()
        await delivery.ack()

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_an_ack_after_close_has_no_effect(self, harness: SubscriberHarness) -> None:
        gone, delivery = await deliver_one(harness)
        await gone.close()

        await delivery.ack()

        assert await take_ids(await harness.subscribe("dns"), 1) == ["event-1"]

    async def test_a_cancelled_wait_loses_nothing(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
        await asyncio.sleep(0)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await harness.publish([make_event(1)])

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_close_ends_the_deliveries(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
        await asyncio.sleep(0)

        await subscriber.close()

        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, TIMEOUT.total_seconds())

    async def test_a_closed_subscriber_delivers_nothing(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await subscriber.close()
        await harness.publish([make_event(1)])

        assert [delivery async for delivery in subscriber.deliveries()] == []

    async def test_closing_twice_has_no_effect(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await take(subscriber, 1)

        await subscriber.close()
        await subscriber.close()

        other = await harness.subscribe("dns")
        assert await take_ids(other, 1) == ["event-1"]
        assert await is_silent(harness, other)

    async def test_attributes_have_no_prefix_in_every_mode(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        for mode in Mode:
            await harness.publish([make_event(1)], mode=mode)
            [delivery] = await take(subscriber, 1)

            assert delivery.message.attributes == {
                "specversion": "1.0",
                "id": "event-1",
                "source": "hyperfleet-sentinel",
                "type": "com.redhat.hyperfleet.cluster.reconcile",
                "subject": "cls-1",
                "time": "2026-03-01T12:00:00.250000Z",
                "datacontenttype": "application/json",
            }
            await delivery.ack()

    async def test_a_message_that_is_not_an_event_is_delivered(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        await harness.publish_junk(b"\xff{ not an event")
        [delivery] = await take(subscriber, 1)

        assert delivery.message.body == b"\xff{ not an event"
        assert delivery.message.attributes == {}

    @pytest.mark.parametrize("time", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
    async def test_an_event_with_an_out_of_range_time_is_delivered(
        self, harness: SubscriberHarness, time: str
    ) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=1)

        await harness.publish_junk(msgspec.json.encode({"specversion": "1.0", "id": "odd", "time": time}))
        [odd] = await take(subscriber, 1)
        await odd.ack()
        await harness.publish([make_event(2)])

        assert await ack_next(subscriber, 1) == ["event-2"]

    async def test_a_delivery_knows_when_it_was_published_and_received(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])

        [delivery] = await take(subscriber, 1)

        assert delivery.published_time is not None
        assert delivery.published_time <= delivery.received_time

    async def test_attempts_are_counted(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])

        attempts: list[int] = []
        for _ in range(3):
            [delivery] = await take(subscriber, 1)
            attempts.append(delivery.attempts)
            await delivery.nack()

        assert attempts == [1, 2, 3]

    async def test_at_most_max_in_flight_are_held(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=2)
        await harness.publish(make_events(3))
        first, second = await take(subscriber, 2)

        assert await is_silent(harness, subscriber)
        await first.ack()

        [third] = await take(subscriber, 1)
        received = ids([delivery.message for delivery in (first, second, third)])
        assert sorted(received) == ["event-0", "event-1", "event-2"]

    async def test_messages_beyond_the_capacity_go_to_another_subscriber(self, harness: SubscriberHarness) -> None:
        busy = await harness.subscribe("dns", max_in_flight=1)
        await harness.publish([make_event(0)])
        await take(busy, 1)

        await harness.publish([make_event(1), make_event(2)])

        assert sorted(await take_ids(await harness.subscribe("dns"), 2)) == ["event-1", "event-2"]

    async def test_a_subscriber_that_stops_iterating_loses_nothing(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=2)
        await harness.publish(make_events(6))

        taken = await ack_next(subscriber, 2)
        taken += await ack_next(subscriber, 4)

        assert sorted(taken) == [f"event-{number}" for number in range(6)]

    async def test_a_message_that_always_fails_does_not_block_the_others(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=2)
        await harness.publish(make_events(10))
        done: set[str] = set()

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            async for delivery in subscriber.deliveries():
                [event_id] = ids([delivery.message])
                if event_id == "event-0":
                    await delivery.nack()
                else:
                    done.add(event_id)
                    await delivery.ack()
                if len(done) == 9:
                    break

        assert done == {f"event-{number}" for number in range(1, 10)}

    async def test_a_cancelled_ack_takes_effect(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=1)
        await harness.publish([make_event(1), make_event(2)])
        [delivery] = await take(subscriber, 1)

        acking = asyncio.ensure_future(delivery.ack())
        await asyncio.sleep(0)
        acking.cancel()
        await asyncio.wait([acking])

        assert await ack_next(subscriber, 1) != ids([delivery.message])
        assert await is_silent(harness, subscriber)

    async def test_an_open_subscriber_is_available(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        assert subscriber.unavailable_reason() is None

    async def test_a_closed_subscriber_is_unavailable(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        await subscriber.close()

        assert subscriber.unavailable_reason()

    async def test_the_broker_type_is_a_known_metric_label(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")

        assert subscriber.broker_type in {"rabbitmq", "gcp-pubsub", "memory"}


class ConnectedContract:
    """For drivers whose connection may be lost and whose broker limits how long a message is held."""

    async def test_an_unreachable_broker_is_not_an_error(self, harness: ConnectedHarness) -> None:
        await (await harness.subscribe("dns")).close()
        await harness.publish([make_event(1)])
        await harness.cut()

        subscriber = await harness.subscribe_unreachable("dns")
        unavailable_reason = subscriber.unavailable_reason()
        await harness.heal()

        assert unavailable_reason
        assert await take_ids(subscriber, 1) == ["event-1"]
        assert subscriber.unavailable_reason() is None

    async def test_a_waiting_consumer_is_served_after_a_reconnect(self, harness: ConnectedHarness) -> None:
        subscriber = await harness.subscribe("dns")
        waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
        await asyncio.sleep(0)

        await harness.cut()
        await harness.heal()
        await harness.publish([make_event(1)])

        delivery = await asyncio.wait_for(waiting, TIMEOUT.total_seconds())
        assert ids([delivery.message]) == ["event-1"]

    async def test_work_that_outlives_its_connection_is_not_repeated(self, harness: ConnectedHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=2)
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await harness.cut()
        await harness.heal()
        await harness.publish([make_event(2)])

        # The second arrives over the new connection, and by then the first is back.
        assert await take_ids(subscriber, 1) == ["event-2"]
        await delivery.ack()
        assert await is_silent(harness, subscriber)

    async def test_an_ack_without_a_connection_is_sent_later(self, harness: ConnectedHarness) -> None:
        subscriber, delivery = await deliver_one(harness)

        await harness.cut()
        await delivery.ack()
        await harness.heal()
        await harness.publish([make_event(2)])

        assert await ack_next(subscriber, 1) == ["event-2"]
        await subscriber.close()
        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_close_without_a_connection_loses_nothing(self, harness: ConnectedHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await take(subscriber, 1)

        await harness.cut()
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await subscriber.close()
        await harness.heal()

        assert await take_ids(await harness.subscribe("dns"), 1) == ["event-1"]

    async def test_work_longer_than_the_brokers_limit_is_not_repeated(self, harness: ConnectedHarness) -> None:
        subscriber = await harness.subscribe_with_short_hold("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        assert await is_silent(harness, subscriber)
        await delivery.ack()

        assert await is_silent(harness, subscriber)
        await subscriber.close()
        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_messages_that_wait_too_long_are_still_delivered(self, harness: ConnectedHarness) -> None:
        subscriber = await harness.subscribe_with_short_hold("dns")
        await harness.publish(make_events(4))
        [first] = await take(subscriber, 1)

        await take(subscriber, 1)
        await first.ack()
        await subscriber.close()

        rest = await ack_next(await harness.subscribe("dns"), 3)
        assert sorted([*ids([first.message]), *rest]) == [f"event-{number}" for number in range(4)]

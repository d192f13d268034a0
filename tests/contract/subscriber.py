"""What every `ports.Subscriber` promises."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sentinel import ports
from sentinel.core.events import Event
from tests.contract.publisher import ids, make_event, make_events

AMPLE = timedelta(seconds=20)


class SubscriberHarness(ABC):
    """A broker as a test needs it."""

    silence: timedelta = timedelta(milliseconds=50)
    """How long nothing has to come before a test believes that nothing will."""

    @abstractmethod
    async def subscribe(self, subscription: str) -> ports.Subscriber:
        """A subscriber that gets what is published from now on; the harness closes it in the end."""

    @abstractmethod
    async def publish(self, events: Sequence[Event]) -> None:
        """Publishes, and sees to it that the broker has confirmed."""


async def take(subscriber: ports.Subscriber, count: int) -> list[ports.Delivery]:
    """The next so many deliveries, none of them settled."""
    taken: list[ports.Delivery] = []
    async with asyncio.timeout(AMPLE.total_seconds()):
        async for delivery in subscriber.deliveries():
            taken.append(delivery)
            if len(taken) == count:
                break
    return taken


async def take_ids(subscriber: ports.Subscriber, count: int) -> list[str]:
    return ids([delivery.message for delivery in await take(subscriber, count)])


async def is_silent(harness: SubscriberHarness, subscriber: ports.Subscriber) -> bool:
    """Whether nothing is delivered for a while."""
    waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
    done, _ = await asyncio.wait([waiting], timeout=harness.silence.total_seconds())
    waiting.cancel()
    await asyncio.wait([waiting])
    return not done


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
        everything = asyncio.Event()

        async def work(subscriber: ports.Subscriber) -> None:
            async for delivery in subscriber.deliveries():
                received.extend(ids([delivery.message]))
                await delivery.ack()
                if len(received) == 20:
                    everything.set()

        async with asyncio.timeout(AMPLE.total_seconds()), asyncio.TaskGroup() as workers:
            workers.create_task(work(one))
            workers.create_task(work(other))
            await harness.publish(make_events(20))
            await everything.wait()
            await one.close()
            await other.close()

        assert sorted(received) == sorted(event.id for event in make_events(20))

    async def test_what_was_published_before_is_not_delivered(self, harness: SubscriberHarness) -> None:
        await harness.subscribe("elsewhere")
        await harness.publish([make_event(1)])

        late = await harness.subscribe("dns")
        await harness.publish([make_event(2)])

        assert await take_ids(late, 1) == ["event-2"]

    async def test_a_subscription_keeps_messages_while_nobody_is_there(self, harness: SubscriberHarness) -> None:
        await (await harness.subscribe("dns")).close()

        await harness.publish([make_event(1)])
        subscriber = await harness.subscribe("dns")

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_an_acked_message_is_not_delivered_again(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await delivery.ack()
        await subscriber.close()

        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_a_nacked_message_is_delivered_again(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await delivery.nack()

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_a_message_that_is_held_goes_to_nobody_else(self, harness: SubscriberHarness) -> None:
        holder = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await take(holder, 1)

        other = await harness.subscribe("dns")

        assert await is_silent(harness, other)

    async def test_what_is_unsettled_at_close_is_delivered_again(self, harness: SubscriberHarness) -> None:
        gone = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        first, *_ = await take(gone, 3)
        await first.ack()

        await gone.close()
        other = await harness.subscribe("dns")

        expected = sorted({"event-0", "event-1", "event-2"} - set(ids([first.message])))
        assert sorted(await take_ids(other, 2)) == expected

    async def test_settling_again_is_harmless(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await delivery.ack()
        await delivery.ack()
        await delivery.nack()

        assert await is_silent(harness, subscriber)

    async def test_an_ack_after_a_nack_does_not_take_the_second_delivery_away(
        self, harness: SubscriberHarness
    ) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await delivery.nack()
        await delivery.ack()

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_an_ack_after_close_is_harmless_and_too_late(self, harness: SubscriberHarness) -> None:
        gone = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [delivery] = await take(gone, 1)
        await gone.close()

        await delivery.ack()

        assert await take_ids(await harness.subscribe("dns"), 1) == ["event-1"]

    async def test_a_wait_that_is_cancelled_loses_nothing(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
        await asyncio.sleep(0)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await harness.publish([make_event(1)])

        assert await take_ids(subscriber, 1) == ["event-1"]

    async def test_closing_ends_the_deliveries(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
        await asyncio.sleep(0)

        await subscriber.close()

        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, AMPLE.total_seconds())

    async def test_a_closed_subscriber_delivers_nothing(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await subscriber.close()
        await harness.publish([make_event(1)])

        assert [delivery async for delivery in subscriber.deliveries()] == []

    async def test_closing_twice_is_harmless(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await take(subscriber, 1)

        await subscriber.close()
        await subscriber.close()

        other = await harness.subscribe("dns")
        assert await take_ids(other, 1) == ["event-1"]
        assert await is_silent(harness, other)

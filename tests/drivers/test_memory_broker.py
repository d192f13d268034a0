"""The memory broker beyond the contracts: capacity, atomic publishing, order, removal."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.core.events import Mode
from sentinel.drivers.memory_broker import MemoryBroker, MemoryPublisher
from sentinel.ports.errors import Unavailable
from sentinel.ports.publisher import PublishOutcome
from sentinel.runtime.backoff import Backoff
from sentinel.testing.loop import simulated
from tests.contract.publisher import ids, make_event, make_events
from tests.contract.subscriber import take, take_ids

TIMEOUT = timedelta(seconds=20)
AT_ONCE = timedelta(0)
SOON = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1))


async def opened(broker: MemoryBroker) -> MemoryPublisher:
    publisher = broker.publisher()
    await publisher.open()
    return publisher


async def test_events_without_room_by_the_deadline_are_refused() -> None:
    broker = MemoryBroker(capacity=2)
    broker.subscribe("dns")
    publisher = await opened(broker)

    receipt = await publisher.publish(make_events(4), deadline=AT_ONCE)

    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 2 + [PublishOutcome.REFUSED] * 2
    assert receipt.error == "no room within 0s in subscription dns"
    assert len(receipt.seconds) == 2


async def test_a_refused_event_is_in_no_subscription() -> None:
    broker = MemoryBroker(capacity=1)
    full, free = broker.subscribe("full"), broker.subscribe("free")
    publisher = await opened(broker)
    await publisher.publish([make_event(1)], deadline=AT_ONCE)
    [delivery] = await take(free, 1)
    await delivery.ack()

    receipt = await publisher.publish([make_event(2)], deadline=AT_ONCE)

    assert list(receipt.outcomes) == [PublishOutcome.REFUSED]
    assert broker.full_subscriptions() == ["full"]
    assert broker.backlog("free") == 0
    assert await take_ids(full, 1) == ["event-1"]


async def test_a_publisher_waits_until_an_ack_makes_room() -> None:
    broker = MemoryBroker(capacity=1)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish([make_event(1)], deadline=AT_ONCE)

    waiting = asyncio.create_task(publisher.publish([make_event(2)], deadline=TIMEOUT))
    [delivery] = await take(subscriber, 1)
    await asyncio.sleep(0)
    was_waiting = not waiting.done()
    await delivery.ack()
    receipt = await waiting

    assert was_waiting
    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
    assert await take_ids(subscriber, 1) == ["event-2"]


async def test_removing_a_full_subscription_makes_room() -> None:
    broker = MemoryBroker(capacity=1)
    broker.subscribe("abandoned")
    publisher = await opened(broker)
    await publisher.publish([make_event(1)], deadline=AT_ONCE)
    broker.subscribe("dns")

    waiting = asyncio.create_task(publisher.publish([make_event(2)], deadline=TIMEOUT))
    await asyncio.sleep(0)
    broker.unsubscribe("abandoned")
    receipt = await waiting

    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
    assert broker.backlog("dns") == 1


async def test_an_unsettled_message_counts_so_that_it_can_be_requeued() -> None:
    broker = MemoryBroker(capacity=1, retry=SOON)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish([make_event(1)], deadline=AT_ONCE)
    [delivery] = await take(subscriber, 1)

    while_held = await publisher.publish([make_event(2)], deadline=AT_ONCE)
    await delivery.nack()

    assert list(while_held.outcomes) == [PublishOutcome.REFUSED]
    assert broker.backlog("dns") == 1
    assert await take_ids(subscriber, 1) == ["event-1"]


async def test_messages_are_delivered_in_the_order_of_publishing() -> None:
    broker = MemoryBroker()
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)

    await publisher.publish(make_events(5), deadline=AT_ONCE)

    assert await take_ids(subscriber, 5) == [f"event-{number}" for number in range(5)]


async def test_a_nacked_message_goes_to_the_back() -> None:
    broker = MemoryBroker(retry=SOON)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish(make_events(3), deadline=AT_ONCE)
    [delivery] = await take(subscriber, 1)

    await delivery.nack()

    assert await take_ids(subscriber, 3) == ["event-1", "event-2", "event-0"]


async def test_messages_unsettled_at_close_come_first_and_in_order() -> None:
    broker = MemoryBroker()
    gone = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish(make_events(4), deadline=AT_ONCE)
    await take(gone, 2)

    await gone.close()

    assert await take_ids(broker.subscribe("dns"), 4) == [f"event-{number}" for number in range(4)]


async def test_removing_a_subscription_ends_its_deliveries() -> None:
    broker = MemoryBroker()
    subscriber = broker.subscribe("dns")
    waiting = asyncio.ensure_future(anext(subscriber.deliveries()))
    await asyncio.sleep(0)

    broker.unsubscribe("dns")

    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, TIMEOUT.total_seconds())


async def test_settling_after_the_subscription_was_removed_is_harmless() -> None:
    broker = MemoryBroker(retry=SOON)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish(make_events(2), deadline=AT_ONCE)
    acked, nacked = await take(subscriber, 2)
    broker.unsubscribe("dns")
    broker.subscribe("dns")

    await acked.ack()
    await nacked.nack()

    assert broker.backlog("dns") == 0


async def test_removing_an_unknown_subscription_is_harmless() -> None:
    MemoryBroker().unsubscribe("nobody")


async def test_publishers_of_both_modes_share_a_broker() -> None:
    broker = MemoryBroker()
    subscriber = broker.subscribe("dns")
    structured, binary = broker.publisher(mode=Mode.STRUCTURED), broker.publisher(mode=Mode.BINARY)
    await structured.open()
    await binary.open()

    await structured.publish([make_event(1)], deadline=AT_ONCE)
    await binary.publish([make_event(2)], deadline=AT_ONCE)
    messages = [delivery.message for delivery in await take(subscriber, 2)]

    assert ids(messages) == ["event-1", "event-2"]
    assert [message.content_type for message in messages] == [
        "application/cloudevents+json",
        "application/json",
    ]


def test_a_capacity_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="capacity: expected 1 or more, got 0"):
        MemoryBroker(capacity=0)


async def test_a_subscription_keeps_its_newest_dead_letters() -> None:
    broker = MemoryBroker(capacity=2)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    for number in range(3):
        await publisher.publish([make_event(number)], deadline=AT_ONCE)
        [delivery] = await take(subscriber, 1)
        await delivery.dead_letter("no")

    letters = await broker.dead_letters("dns").peek(limit=10)

    assert [letter.id for letter in letters] == ["event-1", "event-2"]


@simulated
async def test_a_replay_without_room_fails_and_keeps_the_letter() -> None:
    broker = MemoryBroker(capacity=1)
    subscriber = broker.subscribe("dns")
    publisher = await opened(broker)
    await publisher.publish([make_event(1)], deadline=AT_ONCE)
    await (await anext(subscriber.deliveries())).dead_letter("no")
    await publisher.publish([make_event(2)], deadline=AT_ONCE)
    letters = broker.dead_letters("dns")

    with pytest.raises(Unavailable, match="no room in subscription dns"):
        await letters.replay()

    assert [letter.id for letter in await letters.peek(limit=10)] == ["event-1"]

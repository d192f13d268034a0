"""The Pub/Sub subscriber beyond the contract: required resources, pulls and leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Unpack

import pytest
from grpc import StatusCode

from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.publisher import Connectivity, PublishOutcome
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from tests.contract.connection import opened
from tests.contract.publisher import make_events
from tests.contract.subscriber import SubscriberOptions, ack_next, take
from tests.drivers.pubsub.scripted_subscription import FakeSubscription, fake_subscription
from tests.support.brokers import pubsub
from tests.support.brokers.pubsub import PROJECT, always, in_turn, opened_publisher
from tests.support.brokers.rabbitmq import AT_ONCE, eventually, unique
from tools.services.server import free_port

TIMEOUT = timedelta(seconds=20)
SHORT_PULL = timedelta(seconds=1.2)
SECOND = timedelta(seconds=1)


class PubSubOptions(SubscriberOptions, total=False):
    topic: str
    subscription: str
    create_topic: bool
    lease: timedelta
    pull_timeout: timedelta


def make_subscriber(host: str, **changes: Unpack[PubSubOptions]) -> PubSubSubscriber:
    """Return a subscriber that reconnects at once, by default of the topic `events`."""
    names: PubSubOptions = {"topic": "events", "subscription": "dns"}
    limits: PubSubOptions = {"max_in_flight": 10, "lease": 10 * SECOND, "pull_timeout": SHORT_PULL}
    options: PubSubOptions = {**names, **limits, **changes}
    return PubSubSubscriber(project_id=PROJECT, emulator_host=host, reconnect=AT_ONCE, retry=AT_ONCE, **options)


async def publish(host: str, topic: str, count: int) -> None:
    async with opened_publisher(host, topic) as publisher:
        receipt = await publisher.publish(make_events(count), deadline=TIMEOUT)
    assert set(receipt.outcomes) == {PublishOutcome.CONFIRMED}


class TestRequiredResources:
    async def test_open_names_a_missing_subscription(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as inbox:
            with pytest.raises(
                Misconfigured, match=rf"subscription '.*/{name}': .*create it, or set BROKER_CREATE_TOPIC"
            ):
                await make_subscriber(host, topic=inbox.topic, subscription=name).open()

    async def test_a_subscription_of_another_topic_is_a_misconfiguration(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as one, pubsub.open_inbox(host) as other:
            async with opened(make_subscriber(host, topic=one.topic, subscription=name, create_topic=True)):
                pass

            expected = (
                f"subscription '.*/{name}': expected it to have topic '.*/{other.topic}', got '.*/{one.topic}'"
            )
            with pytest.raises(Misconfigured, match=expected):
                await make_subscriber(host, topic=other.topic, subscription=name).open()

    async def test_open_names_a_missing_dead_letter_subscription(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as inbox:
            async with opened(make_subscriber(host, topic=inbox.topic, subscription=name, create_topic=True)):
                pass
            await pubsub.remove_subscription(host, name + DEAD_LETTERS_SUFFIX)

            with pytest.raises(Misconfigured, match=f"subscription '.*/{name}{DEAD_LETTERS_SUFFIX}'"):
                await make_subscriber(host, topic=inbox.topic, subscription=name).open()

    async def test_everything_missing_is_created_if_allowed(self) -> None:
        host, topic, name = pubsub.emulator_host(), unique("topic"), unique("subscription")

        async with opened(make_subscriber(host, topic=topic, subscription=name, create_topic=True)) as subscriber:
            await publish(host, topic, 2)
            one, other = await take(subscriber, 2)
            await one.ack()
            await other.dead_letter("no")

        # Everything exists now, so nothing has to be created.
        async with opened(make_subscriber(host, topic=topic, subscription=name)):
            pass

    async def test_a_deleted_dead_letter_subscription_is_created_again(self) -> None:
        host, topic, name = pubsub.emulator_host(), unique("topic"), unique("subscription")
        letters = PubSubDeadLetters(
            project_id=PROJECT, topic=topic, subscription=name, emulator_host=host, pull_timeout=SHORT_PULL
        )
        async with opened(make_subscriber(host, topic=topic, subscription=name, create_topic=True)) as subscriber:
            await publish(host, topic, 1)
            [delivery] = await take(subscriber, 1)
            await pubsub.remove_subscription(host, name + DEAD_LETTERS_SUFFIX)

            await delivery.dead_letter("no")

        assert len(await letters.peek(limit=10)) == 1

    async def test_an_emulator_that_lost_its_state_is_set_up_again(self) -> None:
        changes: list[Connectivity] = []
        with pubsub.private_emulator() as emulator:
            async with opened(
                make_subscriber(emulator.host, create_topic=True, observe=changes.append)
            ) as subscriber:
                await emulator.kill()
                await emulator.start()
                await eventually(lambda: len(changes) >= 3 and subscriber.unavailable_reason() is None)
                await publish(emulator.host, "events", 1)

                assert await ack_next(subscriber, 1) == ["event-0"]

    async def test_a_subscriber_without_permission_to_get_receives(self, service: FakeSubscription) -> None:
        service.on_get = always(StatusCode.PERMISSION_DENIED)
        service.deliver("a-1")

        async with opened(make_subscriber(service.host)) as subscriber:
            [delivery] = await take(subscriber, 1)

        assert delivery.message.body == b"junk"

    async def test_a_denied_pull_is_unavailable(self, service: FakeSubscription) -> None:
        service.on_pull = always(StatusCode.PERMISSION_DENIED)

        async with opened(make_subscriber(service.host)) as subscriber:
            await eventually(lambda: subscriber.unavailable_reason() is not None)

            assert subscriber.unavailable_reason() == f"{service.host}: PERMISSION_DENIED: set by a test"


@pytest.fixture
async def service() -> AsyncIterator[FakeSubscription]:
    async with fake_subscription(f"projects/{PROJECT}/topics/events") as service:
        yield service


class TestReceiving:
    async def test_a_pull_asks_for_the_free_capacity(self, service: FakeSubscription) -> None:
        for number in range(4):
            service.deliver(f"a-{number}", message_id=f"m-{number}")

        async with opened(make_subscriber(service.host, max_in_flight=3)) as subscriber:
            first, *_ = await take(subscriber, 3)
            limits_while_full = list(service.pull_limits)
            await first.ack()
            await take(subscriber, 1)

        assert limits_while_full == [3]
        assert service.pull_limits[1] == 1

    async def test_a_pull_without_a_response_is_not_unavailable(self, service: FakeSubscription) -> None:
        changes: list[Connectivity] = []
        service.on_pull = in_turn(StatusCode.DEADLINE_EXCEEDED, StatusCode.DEADLINE_EXCEEDED)
        service.deliver("a-1")

        async with opened(make_subscriber(service.host, observe=changes.append)) as subscriber:
            await take(subscriber, 1)

        assert len(service.pull_limits) >= 3
        assert [change.is_connected for change in changes] == [True]

    async def test_the_lease_of_a_held_message_is_extended(self, service: FakeSubscription) -> None:
        service.deliver("a-1")

        async with opened(make_subscriber(service.host, lease=SECOND, pull_timeout=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            await service.wait_until(lambda: len(service.leases) >= 2)
            await delivery.ack()
            settled = len(service.leases)

        assert set(service.leases) == {("a-1", 1)}
        assert len(service.leases) == settled
        assert service.acknowledged == ["a-1"]

    async def test_a_duplicate_is_not_handed_out_but_acked(self, service: FakeSubscription) -> None:
        service.deliver("a-1")
        async with opened(make_subscriber(service.host, pull_timeout=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            another = asyncio.ensure_future(anext(subscriber.deliveries()))

            service.deliver("a-2")
            await service.wait_until(lambda: len(service.pull_limits) >= 3)
            is_handed_out_twice = another.done()
            await delivery.ack()
            another.cancel()

        assert not is_handed_out_twice
        assert service.acknowledged == ["a-1", "a-2"]

    async def test_a_failed_ack_is_repeated_on_redelivery(self, service: FakeSubscription) -> None:
        service.on_acknowledge = in_turn(StatusCode.UNAVAILABLE)
        service.deliver("a-1")
        async with opened(make_subscriber(service.host, pull_timeout=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            await delivery.ack()

            service.deliver("a-2")
            await service.wait_until(lambda: service.acknowledged == ["a-1", "a-2"])

    async def test_a_message_held_too_long_is_requeued_and_pulled_again(self, service: FakeSubscription) -> None:
        service.deliver("a-1")
        async with opened(
            make_subscriber(service.host, max_hold=timedelta(milliseconds=20), pull_timeout=SECOND)
        ) as subscriber:
            [delivery] = await take(subscriber, 1)
            await service.wait_until(lambda: ("a-1", 0) in service.leases)
            service.deliver("a-2")
            await service.wait_until(lambda: ("a-2", 0) in service.leases)
            await delivery.ack()
            service.deliver("a-3")
            await service.wait_until(lambda: bool(service.acknowledged))

        assert service.acknowledged == ["a-3"]

    async def test_close_requeues_unsettled_messages(self, service: FakeSubscription) -> None:
        service.deliver("a-1", message_id="m-1")
        service.deliver("a-2", message_id="m-2")
        async with opened(make_subscriber(service.host, pull_timeout=SECOND)) as subscriber:
            await take(subscriber, 1)

        assert service.leases == [("a-1", 0), ("a-2", 0)]

    async def test_messages_pulled_during_close_are_requeued(self, service: FakeSubscription) -> None:
        subscriber = make_subscriber(service.host, pull_timeout=TIMEOUT)
        await subscriber.open()
        await service.wait_until(lambda: bool(service.pull_limits))

        closing = asyncio.ensure_future(subscriber.close())
        await asyncio.sleep(0)
        service.deliver("a-1")
        await closing

        assert service.leases == [("a-1", 0)]


class TestDeadLetters:
    async def test_an_unreachable_service_is_named(self) -> None:
        host = f"127.0.0.1:{free_port()}"
        letters = PubSubDeadLetters(project_id=PROJECT, topic="t", subscription="dns", emulator_host=host)

        with pytest.raises(Unavailable, match=f"{host}: UNAVAILABLE"):
            await letters.peek(limit=1)

    async def test_a_denied_pull_is_a_misconfiguration(self, service: FakeSubscription) -> None:
        service.on_pull = always(StatusCode.PERMISSION_DENIED)
        letters = PubSubDeadLetters(project_id=PROJECT, topic="t", subscription="dns", emulator_host=service.host)

        with pytest.raises(Misconfigured, match="dns-dead-letters: PERMISSION_DENIED"):
            await letters.peek(limit=1)

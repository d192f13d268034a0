"""The Pub/Sub subscriber beyond the contract: what has to exist, what it asks for, and the leases it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain, repeat

import grpc  # type: ignore[import-untyped]  # it ships no types
import pytest

from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.drivers.pubsub.subscriber import MAX_HOLD, PubSubSubscriber
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.publisher import Connectivity, Outcome
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from sentinel.runtime.backoff import Backoff
from tests.contract.publisher import make_events
from tests.contract.subscriber import settle_all, take
from tests.drivers.pubsub.scripted_subscription import FakeSubscription, fake_subscription
from tests.support.brokers import pubsub
from tests.support.brokers.pubsub import PROJECT, Verdict
from tests.support.brokers.rabbitmq import eventually, unique
from tools.services import free_port

AMPLE = timedelta(seconds=20)
AT_ONCE = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=50))
SHORT_PULL = timedelta(seconds=1.2)
SECOND = timedelta(seconds=1)


def make_subscriber(
    host: str,
    *,
    topic: str = "events",
    subscription: str = "dns",
    max_in_flight: int = 10,
    create_topic: bool = False,
    lease: timedelta = 10 * SECOND,
    max_hold: timedelta = MAX_HOLD,
    pull: timedelta = SHORT_PULL,
    observe: Callable[[Connectivity], None] = lambda change: None,
) -> PubSubSubscriber:
    return PubSubSubscriber(
        project_id=PROJECT,
        topic=topic,
        subscription=subscription,
        max_in_flight=max_in_flight,
        create_topic=create_topic,
        emulator_host=host,
        lease=lease,
        max_hold=max_hold,
        pull=pull,
        reconnect=AT_ONCE,
        retry=AT_ONCE,
        observe=observe,
    )


@asynccontextmanager
async def opened(subscriber: PubSubSubscriber) -> AsyncIterator[PubSubSubscriber]:
    await subscriber.open()
    try:
        yield subscriber
    finally:
        await subscriber.close()


async def publish(host: str, topic: str, count: int) -> None:
    publisher = PubSubPublisher(project_id=PROJECT, topic=topic, emulator_host=host)
    await publisher.open()
    receipt = await publisher.publish(make_events(count), deadline=AMPLE)
    await publisher.close()
    assert set(receipt.outcomes) == {Outcome.CONFIRMED}


class TestNeeds:
    async def test_a_subscription_that_must_not_be_made_has_to_be_there(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as box:
            with pytest.raises(Misconfigured, match=rf"subscription '.*/{name}': .*create it, or let it be"):
                await make_subscriber(host, topic=box.topic, subscription=name).open()

    async def test_a_subscription_of_another_topic_is_a_persons_business(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as one, pubsub.open_inbox(host) as other:
            async with opened(make_subscriber(host, topic=one.topic, subscription=name, create_topic=True)):
                pass

            expected = (
                f"subscription '.*/{name}': expected one of topic '.*/{other.topic}', got one of '.*/{one.topic}'"
            )
            with pytest.raises(Misconfigured, match=expected):
                await make_subscriber(host, topic=other.topic, subscription=name).open()

    async def test_a_place_for_dead_letters_has_to_be_there(self) -> None:
        host, name = pubsub.emulator_host(), unique("subscription")
        async with pubsub.open_inbox(host) as box:
            async with opened(make_subscriber(host, topic=box.topic, subscription=name, create_topic=True)):
                pass
            await pubsub.remove_subscription(host, name + DEAD_LETTERS_SUFFIX)

            with pytest.raises(Misconfigured, match=f"subscription '.*/{name}{DEAD_LETTERS_SUFFIX}'"):
                await make_subscriber(host, topic=box.topic, subscription=name).open()

    async def test_everything_is_made_where_that_is_allowed(self) -> None:
        host, topic, name = pubsub.emulator_host(), unique("topic"), unique("subscription")

        async with opened(make_subscriber(host, topic=topic, subscription=name, create_topic=True)) as subscriber:
            await publish(host, topic, 2)
            one, other = await take(subscriber, 2)
            await one.ack()
            await other.dead_letter("no")

        # Now that all of it exists, nothing has to be made.
        async with opened(make_subscriber(host, topic=topic, subscription=name)):
            pass

    async def test_dead_letters_whose_place_was_taken_away_are_kept_all_the_same(self) -> None:
        host, topic, name = pubsub.emulator_host(), unique("topic"), unique("subscription")
        letters = PubSubDeadLetters(
            project_id=PROJECT, topic=topic, subscription=name, emulator_host=host, pull=SHORT_PULL
        )
        async with opened(make_subscriber(host, topic=topic, subscription=name, create_topic=True)) as subscriber:
            await publish(host, topic, 1)
            [delivery] = await take(subscriber, 1)
            await pubsub.remove_subscription(host, name + DEAD_LETTERS_SUFFIX)

            await delivery.dead_letter("no")

        assert len(await letters.peek(limit=10)) == 1

    async def test_an_emulator_that_forgot_everything_is_told_again(self) -> None:
        changes: list[Connectivity] = []
        with pubsub.private_emulator() as emulator:
            async with opened(
                make_subscriber(emulator.host, create_topic=True, observe=changes.append)
            ) as subscriber:
                await emulator.kill()
                await emulator.start()
                await eventually(lambda: len(changes) >= 3 and subscriber.trouble() is None)
                await publish(emulator.host, "events", 1)

                assert await settle_all(subscriber, 1) == ["event-0"]

    async def test_whoever_may_not_look_receives_all_the_same(self, service: FakeSubscription) -> None:
        service.on_look = lambda: grpc.StatusCode.PERMISSION_DENIED
        service.deliver("a-1")

        async with opened(make_subscriber(service.host)) as subscriber:
            [delivery] = await take(subscriber, 1)

        assert delivery.message.body == b"junk"

    async def test_whoever_may_not_receive_is_told_why(self, service: FakeSubscription) -> None:
        service.on_pull = lambda: grpc.StatusCode.PERMISSION_DENIED

        async with opened(make_subscriber(service.host)) as subscriber:
            await eventually(lambda: subscriber.trouble() is not None)

            assert subscriber.trouble() == f"{service.host}: PERMISSION_DENIED: said by a test"


@pytest.fixture
async def service() -> AsyncIterator[FakeSubscription]:
    async with fake_subscription(f"projects/{PROJECT}/topics/events") as service:
        yield service


def in_turn(*verdicts: Verdict) -> Callable[[], Verdict]:
    """One verdict after the other, then nothing against it."""
    rest: Iterator[Verdict] = chain(verdicts, repeat(None))
    return lambda: next(rest)


class TestReceiving:
    async def test_no_more_is_asked_for_than_there_is_room_for(self, service: FakeSubscription) -> None:
        for number in range(4):
            service.deliver(f"a-{number}", message_id=f"m-{number}")

        async with opened(make_subscriber(service.host, max_in_flight=3)) as subscriber:
            first, *_ = await take(subscriber, 3)
            asked_while_full = list(service.asked_for)
            await first.ack()
            await take(subscriber, 1)

        assert asked_while_full == [3]
        assert service.asked_for[1] == 1

    async def test_a_pull_that_nobody_answers_is_no_trouble(self, service: FakeSubscription) -> None:
        changes: list[Connectivity] = []
        service.on_pull = in_turn(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.DEADLINE_EXCEEDED)
        service.deliver("a-1")

        async with opened(make_subscriber(service.host, observe=changes.append)) as subscriber:
            await take(subscriber, 1)

        assert len(service.asked_for) >= 3
        assert [change.is_connected for change in changes] == [True]

    async def test_a_message_that_is_held_keeps_its_lease(self, service: FakeSubscription) -> None:
        service.deliver("a-1")

        async with opened(make_subscriber(service.host, lease=SECOND, pull=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            await service.until(lambda: len(service.leases) >= 2)
            await delivery.ack()
            settled = len(service.leases)

        assert set(service.leases) == {("a-1", 1)}
        assert len(service.leases) == settled
        assert service.acknowledged == ["a-1"]

    async def test_a_message_that_comes_twice_is_worked_on_once_and_answered_twice(
        self, service: FakeSubscription
    ) -> None:
        service.deliver("a-1")
        async with opened(make_subscriber(service.host, pull=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            another = asyncio.ensure_future(anext(subscriber.deliveries()))

            service.deliver("a-2")
            await service.until(lambda: len(service.asked_for) >= 3)
            is_handed_out_twice = another.done()
            await delivery.ack()
            another.cancel()

        assert not is_handed_out_twice
        assert service.acknowledged == ["a-1", "a-2"]

    async def test_an_ack_that_failed_is_repeated_when_the_message_comes_again(
        self, service: FakeSubscription
    ) -> None:
        service.on_acknowledge = in_turn(grpc.StatusCode.UNAVAILABLE)
        service.deliver("a-1")
        async with opened(make_subscriber(service.host, pull=SECOND)) as subscriber:
            [delivery] = await take(subscriber, 1)
            await delivery.ack()

            service.deliver("a-2")
            await service.until(lambda: service.acknowledged == ["a-1", "a-2"])

    async def test_what_is_held_too_long_is_given_back_and_taken_again(self, service: FakeSubscription) -> None:
        service.deliver("a-1")
        async with opened(
            make_subscriber(service.host, max_hold=timedelta(milliseconds=20), pull=SECOND)
        ) as subscriber:
            [delivery] = await take(subscriber, 1)
            await service.until(lambda: ("a-1", 0) in service.leases)
            service.deliver("a-2")
            await service.until(lambda: ("a-2", 0) in service.leases)
            await delivery.ack()
            service.deliver("a-3")
            await service.until(lambda: bool(service.acknowledged))

        assert service.acknowledged == ["a-3"]

    async def test_closing_gives_back_what_is_held(self, service: FakeSubscription) -> None:
        service.deliver("a-1", message_id="m-1")
        service.deliver("a-2", message_id="m-2")
        async with opened(make_subscriber(service.host, pull=SECOND)) as subscriber:
            await take(subscriber, 1)

        assert service.leases == [("a-1", 0), ("a-2", 0)]

    async def test_what_a_pull_brings_while_closing_is_given_back(self, service: FakeSubscription) -> None:
        subscriber = make_subscriber(service.host, pull=AMPLE)
        await subscriber.open()
        await service.until(lambda: bool(service.asked_for))

        closing = asyncio.ensure_future(subscriber.close())
        await asyncio.sleep(0)
        service.deliver("a-1")
        await closing

        assert service.leases == [("a-1", 0)]


class TestDeadLetters:
    async def test_a_service_that_cannot_be_reached_is_named(self) -> None:
        host = f"127.0.0.1:{free_port()}"
        letters = PubSubDeadLetters(project_id=PROJECT, topic="t", subscription="dns", emulator_host=host)

        with pytest.raises(Unavailable, match=f"{host}: UNAVAILABLE"):
            await letters.peek(limit=1)

    async def test_whoever_may_not_look_is_told_so(self, service: FakeSubscription) -> None:
        service.on_pull = lambda: grpc.StatusCode.PERMISSION_DENIED
        letters = PubSubDeadLetters(project_id=PROJECT, topic="t", subscription="dns", emulator_host=service.host)

        with pytest.raises(Misconfigured, match="dns-dead-letters: PERMISSION_DENIED"):
            await letters.peek(limit=1)

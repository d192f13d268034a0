"""The contract of every `ports.subscription.DeadLetters`, and of deliveries that are dead-lettered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from sentinel.ports.subscription import DeadLetter, DeadLetters, Subscriber
from tests.contract.publisher import ids, make_event, make_events
from tests.contract.subscriber import SubscriberHarness, ack_next, is_silent, take


async def dead_letter_next(subscriber: Subscriber, count: int, *, reason: str = "cannot be read") -> None:
    for _ in range(count):
        [delivery] = await take(subscriber, 1)
        await delivery.dead_letter(reason)


async def dead_letter_events(harness: SubscriberHarness, count: int) -> tuple[Subscriber, DeadLetters]:
    """Subscribe, and dead-letter this many new events."""
    subscriber = await harness.subscribe("dns")
    await harness.publish(make_events(count))
    await dead_letter_next(subscriber, count)
    return subscriber, harness.dead_letters("dns")


def letter_ids(letters: Sequence[DeadLetter]) -> list[str]:
    return sorted(letter.id for letter in letters)


class DeadLettersContract:
    """For every driver."""

    @pytest.fixture
    async def subscriber(self, harness: SubscriberHarness) -> Subscriber:
        """A subscriber to which the event 1 was published."""
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        return subscriber

    async def test_a_dead_letter_has_the_event_and_the_reason(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        before = datetime.now(UTC)
        await harness.publish([make_event(1)])
        [delivery] = await take(subscriber, 1)

        await delivery.dead_letter("no such zone")
        [letter] = await harness.dead_letters("dns").peek(limit=10)

        assert letter.id == "event-1"
        assert letter.type == "com.redhat.hyperfleet.cluster.reconcile"
        assert letter.subject == "cls-1"
        assert letter.reason == "no such zone"
        assert letter.attempts == 1
        assert letter.time is not None
        assert letter.time >= before
        assert letter.message == delivery.message

    async def test_a_dead_letter_is_not_delivered_again(
        self, harness: SubscriberHarness, subscriber: Subscriber
    ) -> None:
        await dead_letter_next(subscriber, 1)

        assert await is_silent(harness, subscriber)
        await subscriber.close()
        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_a_dead_letter_frees_its_slot(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=1)
        await harness.publish(make_events(3))

        await dead_letter_next(subscriber, 1)

        assert len(await ack_next(subscriber, 2)) == 2

    async def test_only_the_first_settlement_counts(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1), make_event(2)])
        acked, dead_lettered = await take(subscriber, 2)

        await acked.ack()
        await acked.dead_letter("too late")
        await dead_lettered.dead_letter("first")
        await dead_lettered.nack()

        assert letter_ids(await harness.dead_letters("dns").peek(limit=10)) == ids([dead_lettered.message])
        assert await is_silent(harness, subscriber)

    async def test_dead_letters_belong_to_one_subscription(self, harness: SubscriberHarness) -> None:
        dns = await harness.subscribe("dns")
        validation = await harness.subscribe("validation")
        await harness.publish([make_event(1)])

        await dead_letter_next(dns, 1)

        assert await harness.dead_letters("validation").peek(limit=10) == []
        assert await ack_next(validation, 1) == ["event-1"]

    async def test_an_unknown_subscription_has_no_dead_letters(self, harness: SubscriberHarness) -> None:
        letters = harness.dead_letters("unknown")

        assert await letters.peek(limit=10) == []
        assert await letters.replay() == 0
        assert await letters.drop() == 0

    async def test_peeking_removes_nothing(self, harness: SubscriberHarness) -> None:
        _, letters = await dead_letter_events(harness, 3)

        first = await letters.peek(limit=10)
        second = await letters.peek(limit=10)

        assert letter_ids(first) == letter_ids(second) == ["event-0", "event-1", "event-2"]

    async def test_peeking_returns_at_most_the_limit(self, harness: SubscriberHarness) -> None:
        _, letters = await dead_letter_events(harness, 3)

        shown = await letters.peek(limit=2)

        assert len(shown) == 2

    async def test_one_letter_is_replayed_and_the_others_stay(self, harness: SubscriberHarness) -> None:
        subscriber, letters = await dead_letter_events(harness, 3)

        count = await letters.replay("event-1")

        assert count == 1
        assert await ack_next(subscriber, 1) == ["event-1"]
        assert letter_ids(await letters.peek(limit=10)) == ["event-0", "event-2"]

    async def test_all_letters_are_replayed(self, harness: SubscriberHarness) -> None:
        subscriber, letters = await dead_letter_events(harness, 3)

        count = await letters.replay()

        assert count == 3
        assert sorted(await ack_next(subscriber, 3)) == ["event-0", "event-1", "event-2"]
        assert await letters.peek(limit=10) == []

    async def test_a_replay_reaches_no_other_subscription(self, harness: SubscriberHarness) -> None:
        dns = await harness.subscribe("dns")
        validation = await harness.subscribe("validation")
        await harness.publish([make_event(1)])
        await dead_letter_next(dns, 1)
        await ack_next(validation, 1)

        await harness.dead_letters("dns").replay()

        assert await ack_next(dns, 1) == ["event-1"]
        assert await is_silent(harness, validation)

    async def test_a_replayed_message_counts_as_new(
        self, harness: SubscriberHarness, subscriber: Subscriber
    ) -> None:
        [first] = await take(subscriber, 1)
        await first.dead_letter("for now")

        await harness.dead_letters("dns").replay()
        [again] = await take(subscriber, 1)

        assert again.message == first.message
        assert again.attempts == 1
        assert again.published_time is not None
        assert first.published_time is not None
        assert again.published_time >= first.published_time

    async def test_a_replayed_message_can_be_dead_lettered_again(
        self, harness: SubscriberHarness, subscriber: Subscriber
    ) -> None:
        await dead_letter_next(subscriber, 1, reason="first")
        letters = harness.dead_letters("dns")

        await letters.replay()
        await dead_letter_next(subscriber, 1, reason="second")

        assert [letter.reason for letter in await letters.peek(limit=10)] == ["second"]

    async def test_a_replay_is_kept_without_subscribers(self, harness: SubscriberHarness) -> None:
        gone = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await dead_letter_next(gone, 1)
        await gone.close()

        await harness.dead_letters("dns").replay()

        assert await ack_next(await harness.subscribe("dns"), 1) == ["event-1"]

    async def test_one_letter_is_dropped_and_the_others_stay(self, harness: SubscriberHarness) -> None:
        subscriber, letters = await dead_letter_events(harness, 3)

        count = await letters.drop("event-1")

        assert count == 1
        assert letter_ids(await letters.peek(limit=10)) == ["event-0", "event-2"]
        assert await is_silent(harness, subscriber)

    async def test_all_letters_are_dropped(self, harness: SubscriberHarness) -> None:
        _, letters = await dead_letter_events(harness, 3)

        count = await letters.drop()

        assert count == 3
        assert await letters.peek(limit=10) == []

    async def test_an_unknown_id_is_not_an_error(self, harness: SubscriberHarness) -> None:
        _, letters = await dead_letter_events(harness, 1)

        assert await letters.replay("event-9") == 0
        assert await letters.drop("event-9") == 0
        assert letter_ids(await letters.peek(limit=10)) == ["event-0"]

    async def test_a_letter_that_is_not_an_event_has_an_id(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish_junk(b"one")
        await harness.publish_junk(b"other")
        await dead_letter_next(subscriber, 2, reason="not an event")
        letters = harness.dead_letters("dns")

        shown = {letter.message.body: letter for letter in await letters.peek(limit=10)}
        await letters.drop(shown[b"one"].id)

        assert [letter.message.body for letter in await letters.peek(limit=10)] == [b"other"]

    async def test_a_reason_that_is_not_valid_unicode_is_replaced(
        self, harness: SubscriberHarness, subscriber: Subscriber
    ) -> None:
        await dead_letter_next(subscriber, 1, reason="half a letter: \ud800")
        [letter] = await harness.dead_letters("dns").peek(limit=10)

        assert letter.reason == "half a letter: ?"

    async def test_a_long_reason_is_truncated(self, harness: SubscriberHarness, subscriber: Subscriber) -> None:
        await dead_letter_next(subscriber, 1, reason="ü" * 100_000)

        [letter] = await harness.dead_letters("dns").peek(limit=10)
        assert set(letter.reason) == {"ü"}
        assert 100 < len(letter.reason.encode()) <= 1_024

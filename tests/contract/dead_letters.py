"""What every `ports.subscription.DeadLetters` promises, and the deliveries that end there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sentinel.ports.subscription import DeadLetter, Subscriber
from tests.contract.publisher import ids, make_event, make_events
from tests.contract.subscriber import SubscriberHarness, is_silent, settle_all, take


async def give_up(subscriber: Subscriber, count: int, *, reason: str = "cannot be read") -> None:
    """Puts the next so many messages among the dead letters."""
    for _ in range(count):
        [delivery] = await take(subscriber, 1)
        await delivery.dead_letter(reason)


def letter_ids(letters: Sequence[DeadLetter]) -> list[str]:
    return sorted(letter.id for letter in letters)


class DeadLettersContract:
    """For every driver."""

    async def test_a_dead_letter_says_what_it_was_and_why_it_is_here(self, harness: SubscriberHarness) -> None:
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

    async def test_a_dead_letter_is_not_delivered_again(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])

        await give_up(subscriber, 1)

        assert await is_silent(harness, subscriber)
        await subscriber.close()
        assert await is_silent(harness, await harness.subscribe("dns"))

    async def test_a_dead_letter_keeps_nobody_waiting(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns", max_in_flight=1)
        await harness.publish(make_events(3))

        await give_up(subscriber, 1)

        assert len(await settle_all(subscriber, 2)) == 2

    async def test_only_the_first_verdict_counts(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1), make_event(2)])
        acked, buried = await take(subscriber, 2)

        await acked.ack()
        await acked.dead_letter("too late")
        await buried.dead_letter("in time")
        await buried.nack()

        assert letter_ids(await harness.dead_letters("dns").peek(limit=10)) == ids([buried.message])
        assert await is_silent(harness, subscriber)

    async def test_dead_letters_are_those_of_one_subscription(self, harness: SubscriberHarness) -> None:
        dns = await harness.subscribe("dns")
        validation = await harness.subscribe("validation")
        await harness.publish([make_event(1)])

        await give_up(dns, 1)

        assert await harness.dead_letters("validation").peek(limit=10) == []
        assert await settle_all(validation, 1) == ["event-1"]

    async def test_a_subscription_that_never_was_has_none(self, harness: SubscriberHarness) -> None:
        letters = harness.dead_letters("nobody")

        assert await letters.peek(limit=10) == []
        assert await letters.replay() == 0
        assert await letters.drop() == 0

    async def test_looking_takes_nothing_away(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)
        letters = harness.dead_letters("dns")

        first = await letters.peek(limit=10)
        second = await letters.peek(limit=10)

        assert letter_ids(first) == letter_ids(second) == ["event-0", "event-1", "event-2"]

    async def test_no_more_are_shown_than_asked_for(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)

        shown = await harness.dead_letters("dns").peek(limit=2)

        assert len(shown) == 2

    async def test_one_is_replayed_and_the_others_stay(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)
        letters = harness.dead_letters("dns")

        count = await letters.replay("event-1")

        assert count == 1
        assert await settle_all(subscriber, 1) == ["event-1"]
        assert letter_ids(await letters.peek(limit=10)) == ["event-0", "event-2"]

    async def test_all_are_replayed(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)
        letters = harness.dead_letters("dns")

        count = await letters.replay()

        assert count == 3
        assert sorted(await settle_all(subscriber, 3)) == ["event-0", "event-1", "event-2"]
        assert await letters.peek(limit=10) == []

    async def test_a_replay_reaches_no_other_subscription(self, harness: SubscriberHarness) -> None:
        dns = await harness.subscribe("dns")
        validation = await harness.subscribe("validation")
        await harness.publish([make_event(1)])
        await give_up(dns, 1)
        await settle_all(validation, 1)

        await harness.dead_letters("dns").replay()

        assert await settle_all(dns, 1) == ["event-1"]
        assert await is_silent(harness, validation)

    async def test_a_replayed_message_is_as_good_as_new(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        [first] = await take(subscriber, 1)
        await first.dead_letter("for now")

        await harness.dead_letters("dns").replay()
        [again] = await take(subscriber, 1)

        assert again.message == first.message
        assert again.attempts == 1
        assert again.published_time is not None
        assert first.published_time is not None
        assert again.published_time >= first.published_time

    async def test_a_replayed_message_can_be_given_up_again(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await give_up(subscriber, 1, reason="first")
        letters = harness.dead_letters("dns")

        await letters.replay()
        await give_up(subscriber, 1, reason="second")

        assert [letter.reason for letter in await letters.peek(limit=10)] == ["second"]

    async def test_a_replay_waits_while_nobody_is_there(self, harness: SubscriberHarness) -> None:
        gone = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await give_up(gone, 1)
        await gone.close()

        await harness.dead_letters("dns").replay()

        assert await settle_all(await harness.subscribe("dns"), 1) == ["event-1"]

    async def test_one_is_dropped_and_the_others_stay(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)
        letters = harness.dead_letters("dns")

        count = await letters.drop("event-1")

        assert count == 1
        assert letter_ids(await letters.peek(limit=10)) == ["event-0", "event-2"]
        assert await is_silent(harness, subscriber)

    async def test_all_are_dropped(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish(make_events(3))
        await give_up(subscriber, 3)
        letters = harness.dead_letters("dns")

        count = await letters.drop()

        assert count == 3
        assert await letters.peek(limit=10) == []

    async def test_an_unknown_id_is_no_error(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])
        await give_up(subscriber, 1)
        letters = harness.dead_letters("dns")

        assert await letters.replay("event-9") == 0
        assert await letters.drop("event-9") == 0
        assert letter_ids(await letters.peek(limit=10)) == ["event-1"]

    async def test_what_is_no_event_can_be_named_all_the_same(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish_junk(b"one")
        await harness.publish_junk(b"other")
        await give_up(subscriber, 2, reason="not an event")
        letters = harness.dead_letters("dns")

        shown = {letter.message.body: letter for letter in await letters.peek(limit=10)}
        await letters.drop(shown[b"one"].id)

        assert [letter.message.body for letter in await letters.peek(limit=10)] == [b"other"]

    async def test_a_reason_that_is_no_proper_text_is_kept_all_the_same(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])

        await give_up(subscriber, 1, reason="half a letter: \ud800")
        [letter] = await harness.dead_letters("dns").peek(limit=10)

        assert letter.reason == "half a letter: ?"

    async def test_a_long_reason_is_cut_short(self, harness: SubscriberHarness) -> None:
        subscriber = await harness.subscribe("dns")
        await harness.publish([make_event(1)])

        await give_up(subscriber, 1, reason="ü" * 100_000)

        [letter] = await harness.dead_letters("dns").peek(limit=10)
        assert set(letter.reason) == {"ü"}
        assert 100 < len(letter.reason.encode()) <= 1_024

"""The deliveries a subscriber holds: limits, backoff, and messages that are requeued and redelivered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sentinel.drivers.deliveries import HeldDeliveries, HeldDelivery
from sentinel.ports.subscription import Message
from sentinel.runtime.backoff import Backoff
from sentinel.testing.loop import simulated

SECOND = timedelta(seconds=1)
RETRY = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0)


class FakeMessage:
    """A broker message that records how it was settled."""

    published_time = datetime(2026, 3, 1, tzinfo=UTC)

    def __init__(
        self, key: str | None = "a", *, attempts: int = 1, is_sent: bool = True, is_dead_lettered: bool = True
    ) -> None:
        self.key = key
        self.attempts = attempts
        self.message = Message(b"", "", {})
        self.calls: list[str] = []
        self.call_times: list[float] = []
        self._is_sent = is_sent
        self._is_dead_lettered = is_dead_lettered

    async def ack(self) -> bool:
        return self._record("ack", self._is_sent)

    async def nack(self) -> bool:
        return self._record("nack", self._is_sent)

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        return self._record(f"dead_letter: {reason} ({attempts})", self._is_dead_lettered)

    def _record(self, call: str, result: bool) -> bool:
        self.calls.append(call)
        self.call_times.append(asyncio.get_running_loop().time())
        return result


class AckHangs(FakeMessage):
    async def ack(self) -> bool:
        await asyncio.sleep(3600)
        return True


class SettlingRaises(FakeMessage):
    async def ack(self) -> bool:
        raise RuntimeError("a bug")

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        self._record("dead_letter", False)
        raise RuntimeError("a bug")


Held = HeldDeliveries[FakeMessage]


def make_held(*, max_in_flight: int = 2, max_hold: timedelta | None = None) -> Held:
    return HeldDeliveries(max_in_flight=max_in_flight, max_hold=max_hold, retry=RETRY, jitter=lambda: 0.5)


@pytest.fixture
def held() -> Held:
    return make_held()


async def deliver(held: Held, *messages: FakeMessage) -> list[HeldDelivery[FakeMessage]]:
    for message in messages:
        held.add(message)
    deliveries = held.deliveries()
    return [await anext(deliveries) for _ in messages]


async def nack_and_wait(delivery: HeldDelivery[FakeMessage]) -> None:
    """Nack, and wait until the message may be delivered again."""
    await delivery.nack()
    await asyncio.sleep(10)


async def redeliver(held: Held, message: FakeMessage) -> FakeMessage:
    """Add a message that was held before; it must not be delivered again."""
    held.add(message)
    assert await is_idle(held)
    return message


async def deliver_and_lose_connection(held: Held, *messages: FakeMessage) -> list[HeldDelivery[FakeMessage]]:
    deliveries = await deliver(held, *messages)
    held.connection_lost()
    return deliveries


async def is_idle(held: Held) -> bool:
    """Whether nothing is handed out for half a minute."""
    waiting = asyncio.ensure_future(anext(held.deliveries()))
    done, _ = await asyncio.wait([waiting], timeout=30)
    waiting.cancel()
    await asyncio.wait([waiting])
    return not done


@simulated
async def test_a_nacked_message_keeps_its_slot_until_it_is_requeued() -> None:
    held = make_held(max_in_flight=1)
    first, second = FakeMessage("a"), FakeMessage("b")
    [delivery] = await deliver(held, first)
    held.add(second)

    await delivery.nack()
    next_delivery = asyncio.ensure_future(anext(held.deliveries()))
    await asyncio.sleep(0.9)
    is_early = next_delivery.done()
    await next_delivery

    assert not is_early
    assert first.calls == ["nack"]
    assert first.call_times == [1.0]


@simulated
async def test_each_attempt_waits_longer_if_the_broker_does_not_count(held: Held) -> None:
    delays: list[float] = []

    for _ in range(5):
        start = asyncio.get_running_loop().time()
        message = FakeMessage()
        [delivery] = await deliver(held, message)
        await delivery.nack()
        await asyncio.sleep(100)
        delays.append(message.call_times[0] - start)

    assert delays == [1, 2, 4, 8, 8]


@simulated
async def test_attempts_start_again_at_one_after_an_ack(held: Held) -> None:
    [failed] = await deliver(held, FakeMessage())
    await nack_and_wait(failed)
    [done] = await deliver(held, FakeMessage())
    await done.ack()

    [again] = await deliver(held, FakeMessage())

    assert (failed.attempts, done.attempts, again.attempts) == (1, 2, 1)


@simulated
async def test_the_brokers_own_count_of_attempts_is_used(held: Held) -> None:
    [delivery] = await deliver(held, FakeMessage(attempts=7))

    assert delivery.attempts == 7


@simulated
async def test_a_message_is_requeued_after_max_hold_while_work_goes_on() -> None:
    held = make_held(max_hold=60 * SECOND)
    first, again = FakeMessage(), FakeMessage(attempts=2)
    [delivery] = await deliver(held, first)

    await asyncio.sleep(61)
    held.add(again)
    is_idle_meanwhile = await is_idle(held)
    await delivery.ack()

    assert is_idle_meanwhile
    assert (first.calls, first.call_times) == (["nack"], [60.0])
    assert again.calls == ["ack"]


@simulated
async def test_work_on_a_message_that_was_requeued_still_takes_its_slot() -> None:
    held = make_held(max_in_flight=1, max_hold=60 * SECOND)
    await deliver(held, FakeMessage("a"))
    await asyncio.sleep(61)

    held.add(FakeMessage("b"))

    assert await is_idle(held)


@simulated
async def test_a_message_that_waits_for_max_hold_is_requeued_and_forgotten() -> None:
    held = make_held(max_hold=60 * SECOND)
    message = FakeMessage()
    held.add(message)

    await asyncio.sleep(61)

    assert message.calls == ["nack"]
    assert await is_idle(held)


@simulated
async def test_an_ack_while_the_message_is_away_is_sent_when_it_returns(held: Held) -> None:
    [delivery] = await deliver_and_lose_connection(held, FakeMessage())

    await delivery.ack()
    again = await redeliver(held, FakeMessage())

    assert again.calls == ["ack"]


@pytest.mark.parametrize("first", [FakeMessage(is_sent=False), SettlingRaises()])
@simulated
async def test_an_ack_that_failed_is_repeated_when_the_message_returns(held: Held, first: FakeMessage) -> None:
    [delivery] = await deliver(held, first)

    await delivery.ack()
    again = await redeliver(held, FakeMessage())

    assert again.calls == ["ack"]


@simulated
async def test_dead_lettering_while_away_takes_effect_on_return(held: Held) -> None:
    [delivery] = await deliver_and_lose_connection(held, FakeMessage())

    await delivery.dead_letter("no")
    again = await redeliver(held, FakeMessage(attempts=2))

    assert again.calls == ["dead_letter: no (2)"]


@simulated
async def test_a_settlement_made_while_away_applies_once(held: Held) -> None:
    [delivery] = await deliver_and_lose_connection(held, FakeMessage())
    await delivery.ack()
    held.add(FakeMessage())

    [another] = await deliver(held, FakeMessage())

    assert another is not delivery


@simulated
async def test_a_nack_while_away_counts_as_an_attempt(held: Held) -> None:
    [delivery] = await deliver_and_lose_connection(held, FakeMessage())

    await nack_and_wait(delivery)

    [again] = await deliver(held, FakeMessage())
    assert again.attempts == 2


@simulated
async def test_a_duplicate_joins_the_work_in_progress(held: Held) -> None:
    first, second = FakeMessage(), FakeMessage()
    [delivery] = await deliver(held, first)
    held.add(second)

    assert await is_idle(held)
    await delivery.ack()

    assert first.calls == second.calls == ["ack"]


@simulated
async def test_a_duplicate_is_not_dead_lettered_twice(held: Held) -> None:
    first, second = FakeMessage(), FakeMessage()
    [delivery] = await deliver(held, first)
    held.add(second)

    await delivery.dead_letter("no")

    assert first.calls == ["dead_letter: no (1)"]
    assert second.calls == ["ack"]


@simulated
async def test_messages_without_a_key_are_all_handed_out(held: Held) -> None:
    one, other = await deliver(held, FakeMessage(None), FakeMessage(None))

    assert one is not other


@simulated
async def test_without_a_key_a_message_acked_while_away_is_redelivered(held: Held) -> None:
    [delivery] = await deliver_and_lose_connection(held, FakeMessage(None))
    await delivery.ack()

    [again] = await deliver(held, FakeMessage(None))

    assert again is not delivery


@simulated
async def test_a_message_that_cannot_be_dead_lettered_is_nacked_later(held: Held) -> None:
    message = FakeMessage(is_dead_lettered=False)
    [delivery] = await deliver(held, message)

    await delivery.dead_letter("no")

    assert message.calls == ["dead_letter: no (1)", "nack"]
    assert message.call_times == [0.0, 1.0]


@simulated
async def test_an_exception_in_dead_lettering_nacks_the_message(held: Held) -> None:
    message = SettlingRaises()
    [delivery] = await deliver(held, message)

    await delivery.dead_letter("no")

    assert message.calls == ["dead_letter", "nack"]


@simulated
async def test_an_exception_in_settling_is_logged_with_key_and_attempts(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    [delivery] = await deliver(held, SettlingRaises(attempts=3))

    await delivery.ack()

    [fields] = [each.__dict__["fields"] for each in caplog.records if each.getMessage() == "message.unsettled"]
    assert (fields["key"], fields["attempts"]) == ("a", 3)


@simulated
async def test_only_1000_settlements_made_while_away_are_remembered() -> None:
    held = make_held(max_in_flight=2_000)
    messages = [FakeMessage(str(number)) for number in range(1_001)]
    for delivery in await deliver_and_lose_connection(held, *messages):
        await delivery.ack()

    [forgotten] = await deliver(held, FakeMessage("0"))
    held.add(FakeMessage("1"))

    assert forgotten.key == "0"
    assert await is_idle(held)


@simulated
async def test_capacity_excludes_deliveries_waiting_and_in_progress() -> None:
    held = make_held(max_in_flight=3)
    [delivery] = await deliver(held, FakeMessage("a"))
    held.add(FakeMessage("b"))
    before = await held.wait_for_capacity()
    held.add(FakeMessage("c"))

    waiting = asyncio.ensure_future(held.wait_for_capacity())
    await asyncio.sleep(1)
    is_early = waiting.done()
    await delivery.ack()

    assert before == 1
    assert not is_early
    assert await waiting == 1


@simulated
async def test_close_requeues_nacked_messages_at_once(held: Held) -> None:
    message = FakeMessage()
    [delivery] = await deliver(held, message)
    await delivery.nack()

    unsettled = await held.close()

    assert unsettled == []
    assert (message.calls, message.call_times) == (["nack"], [0.0])


@simulated
async def test_close_returns_unsettled_messages_oldest_first(held: Held) -> None:
    messages = [FakeMessage("a"), FakeMessage("b"), FakeMessage("c")]
    await deliver(held, *messages[:2])
    held.add(messages[2])

    assert await held.close() == messages


@simulated
async def test_close_does_not_wait_for_a_broker_that_never_answers(held: Held) -> None:
    [delivery] = await deliver(held, AckHangs())
    acking = asyncio.ensure_future(delivery.ack())
    await asyncio.sleep(0)

    await held.close()
    await acking

    assert asyncio.get_running_loop().time() == pytest.approx(5)


@simulated
async def test_after_close_nothing_has_an_effect(held: Held) -> None:
    message, late = FakeMessage("a"), FakeMessage("b")
    [delivery] = await deliver(held, message)
    await held.close()

    await delivery.ack()
    held.add(late)

    assert message.calls == late.calls == []
    assert [each async for each in held.deliveries()] == []


def test_max_in_flight_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_in_flight: expected 1 or more, got 0"):
        make_held(max_in_flight=0)

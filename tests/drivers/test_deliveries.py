"""What a subscriber holds, on virtual time: bounds, backoff, and messages that go away and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from sentinel.drivers.deliveries import HeldDeliveries, HeldDelivery
from sentinel.ports.subscription import Message
from sentinel.runtime.backoff import Backoff
from sentinel.testing import loop

SECOND = timedelta(seconds=1)
RETRY = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0)


class FakeParcel:
    """A parcel that writes down what was said about it."""

    published_time = datetime(2026, 3, 1, tzinfo=UTC)

    def __init__(self, key: str | None, *, attempts: int = 1, hears: bool = True, buries: bool = True) -> None:
        self.key = key
        self.attempts = attempts
        self.message = Message(b"", "", {})
        self.said: list[str] = []
        self.said_at: list[float] = []
        self._hears = hears
        self._buries = buries

    async def accept(self) -> bool:
        return self._note("accepted", self._hears)

    async def give_back(self) -> bool:
        return self._note("given back", self._hears)

    async def bury(self, reason: str, *, attempts: int) -> bool:
        return self._note(f"buried: {reason} ({attempts})", self._buries)

    def _note(self, what: str, answer: bool) -> bool:
        self.said.append(what)
        self.said_at.append(asyncio.get_running_loop().time())
        return answer


class StuckParcel(FakeParcel):
    """A broker that never answers."""

    async def accept(self) -> bool:
        self._note("accepting", True)
        await asyncio.sleep(3600)
        return True


class FaultyParcel(FakeParcel):
    """A way to the broker that has a fault of its own."""

    async def accept(self) -> bool:
        self._note("accepting", True)
        raise RuntimeError("a bug")

    async def bury(self, reason: str, *, attempts: int) -> bool:
        self._note("burying", True)
        raise RuntimeError("a bug")


def make_intake(*, max_in_flight: int = 2, max_hold: timedelta | None = None) -> HeldDeliveries[FakeParcel]:
    return HeldDeliveries(max_in_flight=max_in_flight, max_hold=max_hold, retry=RETRY, random=lambda: 0.5)


async def hand_out(intake: HeldDeliveries[FakeParcel], *parcels: FakeParcel) -> list[HeldDelivery[FakeParcel]]:
    for parcel in parcels:
        intake.arrived(parcel)
    deliveries = intake.deliveries()
    return [await anext(deliveries) for _ in parcels]


async def is_idle(intake: HeldDeliveries[FakeParcel], *, within: timedelta = 30 * SECOND) -> bool:
    """Whether nothing is handed out for a while."""
    waiting = asyncio.ensure_future(anext(intake.deliveries()))
    done, _ = await asyncio.wait([waiting], timeout=within.total_seconds())
    waiting.cancel()
    await asyncio.wait([waiting])
    return not done


def on_virtual_time(scenario: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    async def play() -> None:
        await scenario()

    def test() -> None:
        loop.run(play())

    return test


@on_virtual_time
async def test_a_nacked_message_keeps_its_slot_until_it_goes_back() -> None:
    intake = make_intake(max_in_flight=1)
    first, second = FakeParcel("a"), FakeParcel("b")
    [delivery] = await hand_out(intake, first)
    intake.arrived(second)

    await delivery.nack()
    next_one = asyncio.ensure_future(anext(intake.deliveries()))
    await asyncio.sleep(0.9)
    is_early = next_one.done()
    await next_one

    assert not is_early
    assert first.said == ["given back"]
    assert first.said_at == [1.0]


@on_virtual_time
async def test_each_attempt_waits_longer_even_if_the_broker_does_not_count() -> None:
    intake = make_intake()
    waits: list[float] = []

    for _ in range(5):
        begun = asyncio.get_running_loop().time()
        parcel = FakeParcel("a")
        [delivery] = await hand_out(intake, parcel)
        await delivery.nack()
        await asyncio.sleep(100)
        waits.append(parcel.said_at[0] - begun)

    assert waits == [1, 2, 4, 8, 8]


@on_virtual_time
async def test_a_message_that_was_done_starts_again_at_one() -> None:
    intake = make_intake()
    [failed] = await hand_out(intake, FakeParcel("a"))
    await failed.nack()
    await asyncio.sleep(10)
    [done] = await hand_out(intake, FakeParcel("a"))
    await done.ack()

    [again] = await hand_out(intake, FakeParcel("a"))

    assert (failed.attempts, done.attempts, again.attempts) == (1, 2, 1)


@on_virtual_time
async def test_the_brokers_own_count_is_believed() -> None:
    intake = make_intake()

    [delivery] = await hand_out(intake, FakeParcel("a", attempts=7))

    assert delivery.attempts == 7


@on_virtual_time
async def test_a_parcel_is_given_back_in_time_and_the_work_goes_on() -> None:
    intake = make_intake(max_hold=60 * SECOND)
    first, again = FakeParcel("a"), FakeParcel("a", attempts=2)
    [delivery] = await hand_out(intake, first)

    await asyncio.sleep(61)
    intake.arrived(again)
    is_idle_meanwhile = await is_idle(intake)
    await delivery.ack()

    assert is_idle_meanwhile
    assert (first.said, first.said_at) == (["given back"], [60.0])
    assert again.said == ["accepted"]


@on_virtual_time
async def test_work_on_a_message_that_is_away_still_takes_its_slot() -> None:
    intake = make_intake(max_in_flight=1, max_hold=60 * SECOND)
    await hand_out(intake, FakeParcel("a"))
    await asyncio.sleep(61)

    intake.arrived(FakeParcel("b"))

    assert await is_idle(intake)


@on_virtual_time
async def test_what_waits_too_long_to_be_handed_out_goes_back_and_is_forgotten() -> None:
    intake = make_intake(max_hold=60 * SECOND)
    parcel = FakeParcel("a")
    intake.arrived(parcel)

    await asyncio.sleep(61)

    assert parcel.said == ["given back"]
    assert await is_idle(intake)


@on_virtual_time
async def test_an_ack_while_the_message_is_away_is_carried_out_when_it_comes() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel("a"))
    intake.lost()

    await delivery.ack()
    again = FakeParcel("a")
    intake.arrived(again)

    assert await is_idle(intake)
    assert again.said == ["accepted"]


@on_virtual_time
async def test_an_ack_that_the_broker_did_not_hear_is_repeated_when_the_message_comes() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel("a", hears=False))

    await delivery.ack()
    again = FakeParcel("a")
    intake.arrived(again)

    assert await is_idle(intake)
    assert again.said == ["accepted"]


@on_virtual_time
async def test_giving_up_while_the_message_is_away_is_carried_out_when_it_comes() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel("a"))
    intake.lost()

    await delivery.dead_letter("no")
    again = FakeParcel("a", attempts=2)
    intake.arrived(again)

    assert await is_idle(intake)
    assert again.said == ["buried: no (2)"]


@on_virtual_time
async def test_what_was_decided_applies_once() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel("a"))
    intake.lost()
    await delivery.ack()
    intake.arrived(FakeParcel("a"))

    [another] = await hand_out(intake, FakeParcel("a"))

    assert another is not delivery


@on_virtual_time
async def test_a_nack_while_the_message_is_away_leaves_it_to_come() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel("a"))
    intake.lost()
    await delivery.nack()
    await asyncio.sleep(10)

    [again] = await hand_out(intake, FakeParcel("a"))

    assert again.attempts == 2


@on_virtual_time
async def test_a_repetition_joins_the_work_that_goes_on() -> None:
    intake = make_intake()
    first, second = FakeParcel("a"), FakeParcel("a")
    [delivery] = await hand_out(intake, first)
    intake.arrived(second)

    assert await is_idle(intake)
    await delivery.ack()

    assert first.said == second.said == ["accepted"]


@on_virtual_time
async def test_a_repetition_of_a_dead_letter_is_not_buried_twice() -> None:
    intake = make_intake()
    first, second = FakeParcel("a"), FakeParcel("a")
    [delivery] = await hand_out(intake, first)
    intake.arrived(second)

    await delivery.dead_letter("no")

    assert first.said == ["buried: no (1)"]
    assert second.said == ["accepted"]


@on_virtual_time
async def test_messages_that_cannot_be_told_apart_are_all_handed_out() -> None:
    intake = make_intake()

    one, other = await hand_out(intake, FakeParcel(None), FakeParcel(None))

    assert one is not other


@on_virtual_time
async def test_a_message_without_a_key_that_was_settled_while_away_is_handed_out_again() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, FakeParcel(None))
    intake.lost()
    await delivery.ack()

    [again] = await hand_out(intake, FakeParcel(None))

    assert again is not delivery


@on_virtual_time
async def test_what_cannot_be_buried_is_given_back_after_a_while() -> None:
    intake = make_intake()
    parcel = FakeParcel("a", buries=False)
    [delivery] = await hand_out(intake, parcel)

    await delivery.dead_letter("no")

    assert parcel.said == ["buried: no (1)", "given back"]
    assert parcel.said_at == [0.0, 1.0]


@on_virtual_time
async def test_a_fault_in_accepting_counts_as_not_heard() -> None:
    intake, faulty, again = make_intake(), FaultyParcel("a"), FakeParcel("a")
    [held] = await hand_out(intake, faulty)

    await held.ack()
    intake.arrived(again)
    await is_idle(intake)

    assert again.said == ["accepted"]


def test_a_fault_in_settling_is_told_with_the_message_s_key_and_attempts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        [held] = await hand_out(make_intake(), FaultyParcel("a", attempts=3))
        await held.ack()

    loop.run(scenario())

    [told] = [each.__dict__["fields"] for each in caplog.records if each.getMessage() == "message.unsettled"]
    assert (told["key"], told["attempts"]) == ("a", 3)


@on_virtual_time
async def test_a_fault_in_burying_gives_the_message_back() -> None:
    intake, faulty = make_intake(), FaultyParcel("a")
    [held] = await hand_out(intake, faulty)

    await held.dead_letter("no")

    assert faulty.said == ["burying", "given back"]


@on_virtual_time
async def test_only_so_many_verdicts_are_remembered() -> None:
    intake = make_intake(max_in_flight=2_000)
    deliveries = await hand_out(intake, *(FakeParcel(str(number)) for number in range(1_001)))
    intake.lost()
    for delivery in deliveries:
        await delivery.ack()

    [forgotten] = await hand_out(intake, FakeParcel("0"))
    intake.arrived(FakeParcel("1"))

    assert forgotten.key == "0"
    assert await is_idle(intake)


@on_virtual_time
async def test_room_is_what_is_neither_held_nor_waiting() -> None:
    intake = make_intake(max_in_flight=3)
    [delivery] = await hand_out(intake, FakeParcel("a"))
    intake.arrived(FakeParcel("b"))
    before = await intake.room()
    intake.arrived(FakeParcel("c"))

    waiting = asyncio.ensure_future(intake.room())
    await asyncio.sleep(1)
    is_early = waiting.done()
    await delivery.ack()

    assert before == 1
    assert not is_early
    assert await waiting == 1


@on_virtual_time
async def test_closing_gives_back_at_once_what_was_nacked() -> None:
    intake = make_intake()
    parcel = FakeParcel("a")
    [delivery] = await hand_out(intake, parcel)
    await delivery.nack()

    rest = await intake.close()

    assert rest == []
    assert (parcel.said, parcel.said_at) == (["given back"], [0.0])


@on_virtual_time
async def test_closing_returns_what_is_unsettled_the_oldest_first() -> None:
    intake = make_intake()
    parcels = [FakeParcel("a"), FakeParcel("b"), FakeParcel("c")]
    await hand_out(intake, *parcels[:2])
    intake.arrived(parcels[2])

    assert await intake.close() == parcels


@on_virtual_time
async def test_closing_does_not_wait_for_a_broker_that_never_answers() -> None:
    intake = make_intake()
    [delivery] = await hand_out(intake, StuckParcel("a"))
    acking = asyncio.ensure_future(delivery.ack())
    await asyncio.sleep(0)

    await intake.close()
    await acking

    assert asyncio.get_running_loop().time() == pytest.approx(5)


@on_virtual_time
async def test_after_closing_nothing_has_an_effect() -> None:
    intake = make_intake()
    held, late = FakeParcel("a"), FakeParcel("b")
    [delivery] = await hand_out(intake, held)
    await intake.close()

    await delivery.ack()
    intake.arrived(late)

    assert held.said == late.said == []
    assert [each async for each in intake.deliveries()] == []


def test_an_intake_that_may_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_in_flight: expected 1 or more, got 0"):
        make_intake(max_in_flight=0)

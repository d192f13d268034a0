"""Every message gets its outcome, however confirms are ordered and grouped."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq.confirms import EventBatch, OutstandingConfirms
from sentinel.ports.publisher import PublishOutcome

CONFIRM_OUTCOMES = st.sampled_from([PublishOutcome.CONFIRMED, PublishOutcome.REFUSED])


def make_batch(*ids: str) -> EventBatch:
    return EventBatch([Event(id=id_, type="", subject="", time="", data=msgspec.Raw(b"")) for id_ in ids])


def test_a_multiple_confirm_covers_everything_before_it() -> None:
    outstanding = OutstandingConfirms()
    first, second = make_batch("a", "b", "c"), make_batch("d", "e")
    outstanding.add(first, 3, now=1)
    outstanding.add(second, 2, now=2)

    outstanding.confirm(4, PublishOutcome.CONFIRMED, now=5, multiple=True)

    assert first.outcomes == [PublishOutcome.CONFIRMED] * 3
    assert second.outcomes == [PublishOutcome.CONFIRMED, PublishOutcome.UNCONFIRMED]
    assert (first.seconds, second.seconds) == ([4, 4, 4], [3])
    assert (outstanding.count, outstanding.oldest_send_time) == (1, 2)


def test_a_returned_message_is_unroutable_within_a_multiple_confirm() -> None:
    outstanding = OutstandingConfirms()
    batch = make_batch("a", "b", "c")
    outstanding.add(batch, 3, now=0)

    outstanding.message_returned("b")
    outstanding.confirm(3, PublishOutcome.CONFIRMED, now=1, multiple=True)

    assert batch.outcomes == [PublishOutcome.CONFIRMED, PublishOutcome.UNROUTABLE, PublishOutcome.CONFIRMED]


def test_messages_with_the_same_id_are_returned_separately() -> None:
    outstanding = OutstandingConfirms()
    batch = make_batch("same", "same", "same")
    outstanding.add(batch, 3, now=0)

    outstanding.message_returned("same")
    outstanding.message_returned("same")
    for number in (1, 2, 3):
        outstanding.confirm(number, PublishOutcome.CONFIRMED, now=1, multiple=False)

    assert batch.outcomes == [PublishOutcome.UNROUTABLE, PublishOutcome.UNROUTABLE, PublishOutcome.CONFIRMED]


def test_a_confirm_of_an_unknown_number_is_ignored() -> None:
    outstanding = OutstandingConfirms()
    batch = make_batch("a")
    outstanding.add(batch, 1, now=0)

    outstanding.confirm(7, PublishOutcome.CONFIRMED, now=1, multiple=False)

    assert batch.outcomes == [PublishOutcome.UNCONFIRMED]
    assert outstanding.count == 1


def test_a_skipped_event_takes_no_number() -> None:
    outstanding = OutstandingConfirms()
    batch = make_batch("a", "b", "c")
    outstanding.add(batch, 1, now=0)
    batch.skip_next("too long")
    outstanding.add(batch, 1, now=0)

    outstanding.confirm(2, PublishOutcome.CONFIRMED, now=1, multiple=False)

    assert batch.outcomes == [PublishOutcome.UNCONFIRMED, PublishOutcome.UNSENDABLE, PublishOutcome.CONFIRMED]
    assert batch.unsendable_reasons == {1: "too long"}
    assert batch.remaining == 0


class AnyOrder(RuleBasedStateMachine):
    """Compares with the simplest model: one entry per message."""

    def __init__(self) -> None:
        super().__init__()
        self.outstanding = OutstandingConfirms()
        self.positions: dict[int, tuple[EventBatch, int]] = {}
        self.expected: dict[int, PublishOutcome] = {}
        self.returned: set[int] = set()

    @rule(writes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def send(self, writes: list[int]) -> None:
        sent = len(self.positions)
        batch = make_batch(*(f"event-{sent + 1 + n}" for n in range(sum(writes))))
        for count in writes:
            for position in range(batch.handled, batch.handled + count):
                self.positions[len(self.positions) + 1] = (batch, position)
            self.outstanding.add(batch, count, now=0)

    @precondition(lambda self: len(self.expected) < len(self.positions))
    @rule(data=st.data())
    def return_message(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.positions.keys() - self.expected.keys())))
        if number not in self.returned:
            self.returned.add(number)
            self.outstanding.message_returned(f"event-{number}")

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), outcome=CONFIRM_OUTCOMES, multiple=st.booleans())
    def confirm(self, data: st.DataObject, outcome: PublishOutcome, multiple: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.positions)))
        for each in range(1 if multiple else number, number + 1):
            self.expected.setdefault(each, PublishOutcome.UNROUTABLE if each in self.returned else outcome)
        self.outstanding.confirm(number, outcome, now=1, multiple=multiple)

    @invariant()
    def every_message_has_its_outcome(self) -> None:
        for number, (batch, position) in self.positions.items():
            assert batch.outcomes[position] is self.expected.get(number, PublishOutcome.UNCONFIRMED)

    @invariant()
    def unconfirmed_messages_are_counted(self) -> None:
        unconfirmed = self.positions.keys() - self.expected.keys()
        assert self.outstanding.count == len(unconfirmed)
        assert (self.outstanding.oldest_send_time is None) == (not unconfirmed)
        for batch in {batch for batch, _ in self.positions.values()}:
            numbers = {number for number, (of, _) in self.positions.items() if of is batch}
            assert batch.unconfirmed == len(numbers & unconfirmed)
            assert len(batch.seconds) == len(numbers - unconfirmed)


TestAnyOrder = AnyOrder.TestCase

"""However the broker words its answers, each message gets its own."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq.confirms import EventBatch, OutstandingConfirms
from sentinel.ports.publisher import Outcome

ANSWERS = st.sampled_from([Outcome.CONFIRMED, Outcome.REFUSED])


def make_batch(*ids: str) -> EventBatch:
    return EventBatch([Event(id=id_, type="", subject="", time="", data=msgspec.Raw(b"")) for id_ in ids])


def test_one_word_answers_for_everything_before_it() -> None:
    unconfirmed = OutstandingConfirms()
    first, second = make_batch("a", "b", "c"), make_batch("d", "e")
    unconfirmed.sent(first, 3, now=1)
    unconfirmed.sent(second, 2, now=2)

    unconfirmed.answered(4, Outcome.CONFIRMED, now=5, and_all_before=True)

    assert first.outcomes == [Outcome.CONFIRMED] * 3
    assert second.outcomes == [Outcome.CONFIRMED, Outcome.UNCONFIRMED]
    assert (first.seconds, second.seconds) == ([4, 4, 4], [3])
    assert (unconfirmed.count, unconfirmed.since) == (1, 2)


def test_what_came_back_is_unroutable_even_when_confirmed_together_with_the_rest() -> None:
    unconfirmed = OutstandingConfirms()
    batch = make_batch("a", "b", "c")
    unconfirmed.sent(batch, 3, now=0)

    unconfirmed.returned("b")
    unconfirmed.answered(3, Outcome.CONFIRMED, now=1, and_all_before=True)

    assert batch.outcomes == [Outcome.CONFIRMED, Outcome.UNROUTABLE, Outcome.CONFIRMED]


def test_two_messages_of_one_name_come_back_twice() -> None:
    unconfirmed = OutstandingConfirms()
    batch = make_batch("same", "same", "same")
    unconfirmed.sent(batch, 3, now=0)

    unconfirmed.returned("same")
    unconfirmed.returned("same")
    for number in (1, 2, 3):
        unconfirmed.answered(number, Outcome.CONFIRMED, now=1, and_all_before=False)

    assert batch.outcomes == [Outcome.UNROUTABLE, Outcome.UNROUTABLE, Outcome.CONFIRMED]


def test_an_answer_to_nothing_is_ignored() -> None:
    unconfirmed = OutstandingConfirms()
    batch = make_batch("a")
    unconfirmed.sent(batch, 1, now=0)

    unconfirmed.answered(7, Outcome.CONFIRMED, now=1, and_all_before=False)

    assert batch.outcomes == [Outcome.UNCONFIRMED]
    assert unconfirmed.count == 1


def test_an_event_that_is_passed_over_takes_no_number() -> None:
    unconfirmed = OutstandingConfirms()
    batch = make_batch("a", "b", "c")
    unconfirmed.sent(batch, 1, now=0)
    batch.refuse_next("too long")
    unconfirmed.sent(batch, 1, now=0)

    unconfirmed.answered(2, Outcome.CONFIRMED, now=1, and_all_before=False)

    assert batch.outcomes == [Outcome.UNCONFIRMED, Outcome.UNSENDABLE, Outcome.CONFIRMED]
    assert batch.refusals == {1: "too long"}
    assert batch.rest == 0


class AnyOrder(RuleBasedStateMachine):
    """Against the plainest account there could be: one entry for each message."""

    def __init__(self) -> None:
        super().__init__()
        self.unconfirmed = OutstandingConfirms()
        self.places: dict[int, tuple[EventBatch, int]] = {}
        self.expected: dict[int, Outcome] = {}
        self.returned: set[int] = set()

    @rule(writes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def send(self, writes: list[int]) -> None:
        sent = len(self.places)
        batch = make_batch(*(f"event-{sent + 1 + n}" for n in range(sum(writes))))
        for count in writes:
            for position in range(batch.begun, batch.begun + count):
                self.places[len(self.places) + 1] = (batch, position)
            self.unconfirmed.sent(batch, count, now=0)

    @precondition(lambda self: len(self.expected) < len(self.places))
    @rule(data=st.data())
    def send_back(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.places.keys() - self.expected.keys())))
        if number not in self.returned:
            self.returned.add(number)
            self.unconfirmed.returned(f"event-{number}")

    @precondition(lambda self: self.places)
    @rule(data=st.data(), outcome=ANSWERS, and_all_before=st.booleans())
    def answer(self, data: st.DataObject, outcome: Outcome, and_all_before: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.places)))
        for each in range(1 if and_all_before else number, number + 1):
            self.expected.setdefault(each, Outcome.UNROUTABLE if each in self.returned else outcome)
        self.unconfirmed.answered(number, outcome, now=1, and_all_before=and_all_before)

    @invariant()
    def every_message_has_its_own_answer(self) -> None:
        for number, (batch, position) in self.places.items():
            assert batch.outcomes[position] is self.expected.get(number, Outcome.UNCONFIRMED)

    @invariant()
    def what_is_open_is_counted(self) -> None:
        open_ones = self.places.keys() - self.expected.keys()
        assert self.unconfirmed.count == len(open_ones)
        assert (self.unconfirmed.since is None) == (not open_ones)
        for batch in {batch for batch, _ in self.places.values()}:
            numbers = {number for number, (of, _) in self.places.items() if of is batch}
            assert batch.unanswered == len(numbers & open_ones)
            assert len(batch.seconds) == len(numbers - open_ones)


TestAnyOrder = AnyOrder.TestCase

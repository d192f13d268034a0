"""Any history, polled with and without a stream that lags, repeats itself and is wrong.

The same polls run twice: alone, and with the stream between and during them. With it, no event is lost, and none
is published twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from tests.support.examples import examples

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = Policy(max_age_not_ready=10 * SECOND, max_age_ready=timedelta(minutes=30))
SHORTEST = 9.5 * SECOND
"""Pacing ends a little before the max age."""

Version: TypeAlias = tuple[int, datetime | None]


class Change(msgspec.Struct, frozen=True):
    """The spec changes, a pulse is requested, an adapter reports, or the resource is paused or resumed."""

    kind: str


class Poll(msgspec.Struct, frozen=True):
    """A poll. Its page was read `age` changes ago, and the stream brings something while it is being published."""

    age: int = 0
    during: tuple[Delivery, ...] = ()
    fails: bool = False


class Delivery(msgspec.Struct, frozen=True):
    """The stream brings the state of `age` changes ago, or one that never was, `lie` generations ahead."""

    age: int = 0
    lie: int = 0
    fails: bool = False
    """Whether the broker does not confirm the event."""


Step: TypeAlias = Change | Poll | Delivery

deliveries = st.builds(
    Delivery,
    age=st.integers(0, 6),
    lie=st.sampled_from((0, 0, 0, 1, 5)),
    fails=st.sampled_from((False, False, True)),
)
steps = st.one_of(
    st.builds(Change, kind=st.sampled_from(("spec", "spec", "pulse", "report", "pause"))),
    st.builds(
        Poll,
        age=st.sampled_from((0, 0, 0, 1, 2)),
        during=st.lists(deliveries, max_size=2).map(tuple),
        fails=st.sampled_from((False, False, False, True)),
    ),
    deliveries,
)


def version(resource: Observation) -> Version:
    return resource.generation, resource.pulse_requested_time


class History:
    """One run over one resource. All times are those of the steps, so both runs poll at the same times."""

    def __init__(self, *, has_stream: bool) -> None:
        self.has_stream = has_stream
        self.states = [Observation("cls-1", "Cluster", 1, 1, True, NOW, {})]
        self.published: list[tuple[datetime, Version]] = []
        self.wanted: list[tuple[datetime, Version]] = []
        """Of each published event, the generation and the trigger that no status had answered."""
        self.skips: list[tuple[datetime, Version]] = []
        """What polls saw and skipped."""
        self.polls: list[tuple[datetime, Version, PacingVerdict]] = []
        self.pacer = Pacer()
        if has_stream:
            self.pacer.follow_stream(follows_progress=False)
        self._last_read = 0
        self.poll(NOW, Poll())

    def run(self, history: Sequence[Step]) -> History:
        for n, step in enumerate(history, 1):
            now = NOW + n * SECOND
            match step:
                case Change():
                    self.change(now, step)
                case Poll():
                    self.poll(now, step)
                case Delivery() if self.has_stream:
                    self.deliver(now, step)
        return self

    def change(self, now: datetime, change: Change) -> None:
        last = self.states[-1]
        match change.kind:
            case "spec":
                changes: dict[str, object] = {"generation": last.generation + 1}
            case "pulse":
                changes = {"pulse_requested_time": now}
            case "report":
                changes = {"observed_generation": last.generation, "last_updated_time": now}
            case _:
                changes = {"is_paused": not last.is_paused}
        self.states.append(msgspec.structs.replace(last, **changes))

    def poll(self, now: datetime, poll: Poll) -> None:
        # A later page is never older than an earlier one.
        self._last_read = max(self._last_read, len(self.states) - 1 - poll.age)
        resource = self.states[self._last_read]
        self.pacer.begin_cycle()
        paced = self.pacer.decide(resource, POLICY, now)
        self.polls.append((now, version(resource), paced.verdict))
        if paced.verdict is PacingVerdict.SKIP:
            self.skips.append((now, version(resource)))
        for delivery in poll.during if self.has_stream else ():
            self.deliver(now, delivery)
        if paced.verdict is PacingVerdict.PUBLISH and not poll.fails:
            self.published.append((now, version(resource)))
            self.wanted.append((now, (resource.generation, paced.decision.trigger)))
            self.pacer.record_published(resource, paced.decision, now)
        self.pacer.end_cycle(is_complete=True, resources=1)

    def deliver(self, now: datetime, delivery: Delivery) -> None:
        resource = self.states[max(0, len(self.states) - 1 - delivery.age)]
        if delivery.lie:
            resource = msgspec.structs.replace(resource, generation=resource.generation + delivery.lie)
        paced = self.pacer.decide_streamed(resource, POLICY, now)
        if paced is not None and paced.verdict is PacingVerdict.PUBLISH:
            if not delivery.fails:
                self.published.append((now, version(resource)))
                self.pacer.record_streamed(resource, paced.decision, now)
            self.pacer.end_streamed(resource)


def published_within(history: History, wanted: Version, since: datetime, until: datetime) -> bool:
    generation, trigger = wanted
    return any(
        each[0] == generation and trigger in (None, each[1]) and since <= time <= until
        for time, each in history.published
    )


answered_before_a_lie = [
    Change("pulse"),
    Change("report"),
    Change("spec"),
    Poll(age=1, during=(Delivery(age=3, lie=1),)),
    Poll(),
]
"""The stream invents the generation that then comes, without the pulse that a report has answered."""


def histories(test: Callable[..., None]) -> Callable[[], None]:
    return settings(max_examples=examples(600))(given(history=st.lists(steps, max_size=30))(test))


@histories
@example(history=answered_before_a_lie)
def test_no_event_is_lost(history: list[Step]) -> None:
    alone = History(has_stream=False).run(history)
    both = History(has_stream=True).run(history)

    for time, wanted in alone.wanted:
        assert published_within(both, wanted, time - 10 * SECOND, time)


@histories
def test_no_event_is_published_twice(history: list[Step]) -> None:
    both = History(has_stream=True).run(history)

    for n, (later, each) in enumerate(both.published):
        for earlier, other in both.published[:n]:
            was_skipped = any(
                earlier <= time <= later and skipped[0] >= each[0] and (skipped[1] or NOW) >= (each[1] or NOW)
                for time, skipped in both.skips
            )
            assert each != other or later - earlier >= SHORTEST or was_skipped


@histories
def test_polls_decide_the_same_with_a_stream_that_publishes_nothing(history: list[Step]) -> None:
    silent = [each for each in history if not isinstance(each, Delivery)]
    silent = [msgspec.structs.replace(each, during=()) if isinstance(each, Poll) else each for each in silent]

    assert History(has_stream=False).run(silent).polls == History(has_stream=True).run(silent).polls

"""Positions in the log of changes: no reader skips a change, wherever it stops."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import Position, PositionLost

LOG = "0123abcd"
START = Position(LOG, 1)

numbers = st.integers(0, 2**63 - 1)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    following = draw(st.integers(0, 2**63 - 1))
    unseen = draw(st.lists(st.integers(0, max(0, following - 1)), max_size=5, unique=True)) if following else []
    return Position(LOG, following, tuple(sorted(unseen)))


@given(positions())
def test_a_position_is_read_back_from_its_text(position: Position) -> None:
    assert change_position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "0123abcd",
        "0123abcd-",
        "0123abcd-x",
        "0123ABCD-1",
        "0123abcd-1.",
        "0123abcd-1\n",
        "0123abcd--1",
        "0123abcd-٣",
        "0123abcd-9223372036854775808",
        "0123abcd-12345678901234567890",
        "0123abcd-5.5",
        "0123abcd-5.3.2",
        "0123abcd-5.2.2",
    ],
)
def test_other_texts_are_unreadable(text: str) -> None:
    with pytest.raises(PositionLost, match="unreadable"):
        change_position.parse(text)


@given(st.text())
def test_any_text_is_a_position_or_unreadable(text: str) -> None:
    try:
        position = change_position.parse(text)
    except PositionLost:
        return
    assert position.open == tuple(sorted(set(position.open)))


NEWEST = Position(LOG, 100, (90, 95))


@pytest.mark.parametrize(
    ("position", "expired"),
    [
        (Position(LOG, 100, (90, 95)), 50),
        (Position(LOG, 51), 50),
        (Position(LOG, 92, (40, 90)), 30),
        (Position(LOG, 92, (90,)), 91),
    ],
    ids=["newest", "oldest", "still kept", "still open"],
)
def test_a_position_is_readable_while_nothing_it_misses_has_expired(position: Position, expired: int) -> None:
    change_position.check(position, newest=NEWEST, expired=expired)


@pytest.mark.parametrize(
    ("position", "expired", "reason"),
    [
        (msgspec.structs.replace(NEWEST, log="ffffffff"), 0, "another log"),
        (Position(LOG, 101), 0, "ahead"),
        (Position(LOG, 50), 50, "older"),
        (Position(LOG, 60, (40,)), 40, "older"),
    ],
)
def test_a_position_that_may_miss_something_is_lost(position: Position, expired: int, reason: str) -> None:
    with pytest.raises(PositionLost, match=reason):
        change_position.check(position, newest=NEWEST, expired=expired)


def test_changes_of_one_transaction_are_seen_with_the_last_of_them() -> None:
    newest = Position(LOG, 9)

    reached = change_position.positions_after(START, newest, [3, 3, 5])

    assert reached == [START, Position(LOG, 4), Position(LOG, 6)]


def test_a_late_transaction_is_removed_from_the_open_ones() -> None:
    before, newest = Position(LOG, 9, (3, 4, 5)), Position(LOG, 12, (5, 10))

    reached = change_position.positions_after(before, newest, [3, 4, 11])

    assert reached == [Position(LOG, 9, (4, 5)), Position(LOG, 9, (5,)), Position(LOG, 12, (5, 10))]


class Log:
    """A model of a log whose transactions commit in any order."""

    def __init__(self) -> None:
        self.begun = 0
        self.open: list[int] = []
        self.committed: list[int] = []

    def begin(self) -> None:
        self.begun += 1
        self.open.append(self.begun)

    def commit(self, index: int) -> None:
        if self.open:
            self.committed.append(self.open.pop(index % len(self.open)))

    @property
    def newest(self) -> Position:
        return Position(LOG, self.begun + 1, tuple(sorted(self.open)))

    def after(self, position: Position) -> Sequence[int]:
        return sorted(number for number in self.committed if not position.includes(number))


steps = st.lists(
    st.one_of(
        st.just(("begin", 0)),
        st.tuples(st.just("commit"), st.integers(0, 9)),
        st.tuples(st.just("read"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(steps)
def test_a_reader_that_stops_anywhere_receives_every_change_once(actions: list[tuple[str, int]]) -> None:
    log, position, received = Log(), START, list[int]()

    for action, value in [*actions, *[("commit", 0)] * len(actions), ("read", 10_000)]:
        if action == "begin":
            log.begin()
        elif action == "commit":
            log.commit(value)
        else:
            waiting = log.after(position)
            reached = change_position.positions_after(position, log.newest, waiting)
            for number, after in list(zip(waiting, reached, strict=True))[:value]:
                received.append(number)
                position = change_position.parse(str(after))

    assert sorted(received) == sorted(log.committed)

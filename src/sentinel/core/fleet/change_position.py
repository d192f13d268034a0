"""How far a reader has read the log of changes.

Every change has the number of its transaction, and transactions do not have to commit in the order of their
numbers: PostgreSQL gives a transaction its number when it begins to write. A reader that only remembered the
highest number it has seen would skip the changes of a transaction that was still open at that time. So a
position is a snapshot: all numbers below `next` are included, except those that were `open`.

A database that commits in the order of numbers never has open ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

_TEXT = re.compile(r"([0-9a-f]{8})-([0-9]{1,19})((?:\.[0-9]{1,19})*)", re.ASCII)
_MAX_NUMBER = 2**63 - 1


class PositionLost(Exception):
    """The log cannot be read from this position: it is unreadable, of another log, or older than what is kept."""


class Position(msgspec.Struct, frozen=True):
    """The changes that a reader has seen."""

    log: str
    """Identifies the log: eight hexadecimal digits. A position means nothing in another log."""
    next: int
    """The lowest number that is not included, nor any above it."""
    open: tuple[int, ...] = ()
    """Numbers below `next` that are not included either, ascending."""

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return ".".join((f"{self.log}-{self.next}", *map(str, self.open)))

    def includes(self, number: int) -> bool:
        """Whether the changes of this transaction were seen."""
        return number < self.next and number not in self.open


def parse(text: str) -> Position:
    """Read a position that a client has sent back. Raises `PositionLost`."""
    matched = _TEXT.fullmatch(text)
    if matched is None:
        raise PositionLost("unreadable")
    number, unseen = int(matched[2]), tuple(map(int, matched[3].split(".")[1:]))
    if number > _MAX_NUMBER or list(unseen) != sorted({*unseen}) or any(each >= number for each in unseen):
        raise PositionLost("unreadable")
    return Position(matched[1], number, unseen)


def check(position: Position, *, newest: Position, expired: int) -> None:
    """Raise `PositionLost` if a reader at this position may have missed changes.

    `newest` includes everything that is committed, `expired` is the highest number whose changes were deleted. A
    number that was open and is not any more counts as missed if it is not above `expired`.
    """
    if position.log != newest.log:
        raise PositionLost("of another log")
    if position.next > newest.next:
        raise PositionLost("ahead of the newest change")
    if expired >= position.next or any(each <= expired and newest.includes(each) for each in position.open):
        raise PositionLost("older than the changes that are kept")


def positions_after(before: Position, newest: Position, numbers: Sequence[int]) -> list[Position]:
    """Return the position after each of the changes that a reader at `before` receives.

    `numbers` are those of all changes that `newest` includes and `before` does not, or of the first of them,
    ascending and with whole transactions only. Changes of one transaction are seen with the last of them, so a
    reader that stops between two of them receives all of them again.
    """
    reached = before
    positions = []
    for index, number in enumerate(numbers):
        if index + 1 == len(numbers) or numbers[index + 1] != number:
            reached = _reached(before, newest, number)
        positions.append(reached)
    return positions


def _reached(before: Position, newest: Position, number: int) -> Position:
    """Everything that `newest` includes up to this number, and what `before` includes."""
    if number < before.next:
        late = tuple(each for each in before.open if each > number or not newest.includes(each))
        return Position(before.log, before.next, late)
    return Position(before.log, number + 1, tuple(each for each in newest.open if each <= number))

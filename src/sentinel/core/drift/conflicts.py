"""Detects that another manager keeps changing what the operator corrects, and slows down.

Two controllers that want different values of one field would correct each other forever. The first corrections of
a path come at once. From the fifth within ten minutes on, each waits twice as long as the one before, so that the
conflict costs little, and it is reported with the other manager. It is over when the path has kept its value for
ten minutes after a correction. The count then starts again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

PERIOD = timedelta(minutes=10)
"""Corrections within this time make a conflict. Without drift for this time, it is over."""
FIRST_DELAYED = 5
"""The first correction within the period that has to wait."""
INITIAL_DELAY = timedelta(seconds=30)
MAX_DELAY = timedelta(minutes=10)

MAX_PATHS = 2_000
"""How many paths are remembered. Names of data keys are free, so there is no natural limit."""


class FieldPath(NamedTuple):
    """A path in an object."""

    resource: str
    """`Kind/namespace/name`."""
    path: str
    """A JSON pointer. Empty for the whole object, if it was deleted."""


class Conflict(msgspec.Struct, frozen=True):
    """A path that is corrected again and again."""

    field: FieldPath
    corrections: int
    """How often it was corrected since the count started."""
    until: datetime
    """The next correction waits until then."""
    is_new: bool
    """Whether this is the first drift since the last correction."""


class _Corrections:
    """The corrections of one path."""

    __slots__ = ("count", "delayed", "is_reported", "times")

    def __init__(self) -> None:
        self.times: list[datetime] = []
        """The last corrections, as many as decide whether the next one waits."""
        self.count = 0
        self.delayed = 0
        """How many corrections had to wait. 0: no conflict."""
        self.is_reported = False


class Conflicts:
    """The corrections of all paths."""

    def __init__(self) -> None:
        self._paths: dict[FieldPath, _Corrections] = {}
        """The path that was corrected last is the last."""

    def __len__(self) -> int:
        return len(self._paths)

    def drifted(self, fields: Iterable[FieldPath], now: datetime) -> Conflict | None:
        """Return why a correction of these paths has to wait. None if at least one of them does not wait."""
        conflicts = [self._drifted(field, now) for field in fields]
        found = [conflict for conflict in conflicts if conflict is not None]
        if not found or len(found) < len(conflicts):
            return None
        return min(found, key=lambda conflict: conflict.until)

    def corrected(self, fields: Iterable[FieldPath], now: datetime) -> None:
        """Record that the operator has corrected these paths."""
        for field in fields:
            corrections = self._paths.pop(field, None) or _Corrections()
            corrections.times = [*corrections.times[-(FIRST_DELAYED - 2) :], now]
            corrections.count += 1
            corrections.delayed += corrections.delayed > 0
            corrections.is_reported = False
            self._paths[field] = corrections
        while len(self._paths) > MAX_PATHS:
            del self._paths[next(iter(self._paths))]

    def _drifted(self, field: FieldPath, now: datetime) -> Conflict | None:
        corrections = self._paths.get(field)
        if corrections is None:
            return None
        last = corrections.times[-1]
        if now - last >= PERIOD:
            del self._paths[field]  # the last correction was successful
            return None
        if not corrections.delayed:
            if len(corrections.times) < FIRST_DELAYED - 1 or now - corrections.times[0] >= PERIOD:
                return None
            corrections.delayed = 1
        is_new, corrections.is_reported = not corrections.is_reported, True
        return Conflict(field, corrections.count, last + _delay(corrections.delayed), is_new)


def _delay(delayed: int) -> timedelta:
    factor: int = 2 ** min(delayed - 1, 16)  # enough to reach the maximum
    return min(INITIAL_DELAY * factor, MAX_DELAY)

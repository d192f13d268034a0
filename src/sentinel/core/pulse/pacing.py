"""Have we just said so? What stands between a decision and the broker.

A decision looks at a status, and a status can stand still: reports of `Unknown` are dropped, one adapter of two
may be silent, an adapter's clock may be slow. Decided by status alone, such a resource would get an event at
every poll, for ever. So the same generation of a resource is sent again only after the max age in force, counted
from when it was last published; a newer generation goes at once, and so does a new trigger or new progress, once.

One table serves three ends: pacing, sending nothing twice within a cycle, and forgetting resources that vanished.
Its entries are dropped as soon as the decision on their resource is to skip, so in a healthy fleet it is nearly
empty. In an unhealthy one it holds every resource: an entry is therefore one integer under another, about 130
bytes, rather than an object.

The table says what was published when, and nothing about intervals. So it outlives the settings: a pulse that is
rebuilt for new ones takes the pacer of the one before, and nothing is published again because settings changed.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sentinel.core.pulse.decision import Decision
from sentinel.core.pulse.observation import Observation


class PacingVerdict(StrEnum):
    """What becomes of a resource in this cycle."""

    SKIP = "skip"
    """It is not due."""
    PUBLISH = "publish"
    """It is due, and nothing was said of it lately."""
    PACED = "paced"
    """It is due, and we have just said so."""
    REPEATED = "repeated"
    """It came twice in this walk and is already on its way."""


# What most resources get: to find a member in its enumeration costs more than to find a resource in the table.
_SKIP = PacingVerdict.SKIP

# An entry, from the low bits up: the walk that saw it last, when it was published (0: never), the generation, the
# trigger and the progress published (0: none), a last-updated time that lay in the future (0: none), and when that
# was first seen. Triggers, progress and last-updated times are only ever recognised again, so a hash of each will
# do; what is rare stands higher, because an integer is as long as its highest bit.
_WALK_BITS, _TIME_BITS, _GENERATION_BITS, _STAMP_BITS = 8, 44, 48, 32
_PUBLISHED = _WALK_BITS
_GENERATION = _PUBLISHED + _TIME_BITS
_TRIGGER = _GENERATION + _GENERATION_BITS
_PROGRESS = _TRIGGER + _STAMP_BITS
_FUTURE = _PROGRESS + _STAMP_BITS
_SEEN = _FUTURE + _STAMP_BITS
_WALK_MASK = (1 << _WALK_BITS) - 1
_TIME_MASK = (1 << _TIME_BITS) - 1
_GENERATION_MASK = (1 << _GENERATION_BITS) - 1
_STAMP_MASK = (1 << _STAMP_BITS) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WALKS_UNTIL_FORGOTTEN = 2


_SLACK_SHARE, _MOST_SLACK = 10, timedelta(milliseconds=500)
"""An interval counts as over a little early. Polls come at fixed distances, give or take; without this, a
millisecond of jitter would turn "every ten seconds" into "every fifteen" at polls five seconds apart."""


class Pacer:
    """The table."""

    def __init__(self, *, republish_interval: timedelta | None = None) -> None:
        self.republish_interval = republish_interval
        """Replaces the max age in force; zero turns pacing off. It may be changed between cycles."""
        self._table: dict[int, int] = {}
        self._admitted: set[int] = set()
        self._walk = 0

    def __len__(self) -> int:
        return len(self._table)

    def begin_cycle(self) -> None:
        """Begins a cycle."""
        self._admitted.clear()

    def first_seen(self, resource: Observation, now: datetime) -> datetime | None:
        """When this last-updated time was first seen, if it lay in the future then; `decide` wants to know."""
        updated = resource.last_updated_time
        if updated is None:
            return None
        key = hash(resource.id)
        entry = self._table.get(key)
        if entry is not None and entry >> _FUTURE:
            if (entry >> _FUTURE) & _STAMP_MASK == _stamp(updated):
                seen = entry >> _SEEN
                if seen > _milliseconds(now):
                    # The clock was set back: count from now, as for what was published.
                    seen = _milliseconds(now)
                    self._table[key] = entry & ((1 << _SEEN) - 1) | seen << _SEEN
                return _EPOCH + seen * _MILLISECOND
            entry &= (1 << _FUTURE) - 1
            self._table[key] = entry
        if updated <= now:
            return None
        seen = _milliseconds(now)
        self._table[key] = (entry or self._walk) | _stamp(updated) << _FUTURE | seen << _SEEN
        return _EPOCH + seen * _MILLISECOND

    def consider(self, resource: Observation, decision: Decision, now: datetime) -> PacingVerdict:
        """The verdict on a resource, given the decision. Remembers that it was seen."""
        key = hash(resource.id)
        entry = self._table.get(key)
        if not decision.is_due:
            if entry is not None:
                self._forget_publishing(key, entry)
            return _SKIP
        if key in self._admitted:
            return PacingVerdict.REPEATED
        if entry is not None:
            entry = entry & ~_WALK_MASK | self._walk
            moment = _milliseconds(now)
            published = (entry >> _PUBLISHED) & _TIME_MASK
            if published > moment:
                # The clock was set back: count from now, or nothing would go out until it has caught up.
                published = moment
                entry = entry & ~(_TIME_MASK << _PUBLISHED) | published << _PUBLISHED
            self._table[key] = entry
            interval = decision.max_age if self.republish_interval is None else self.republish_interval
            if (
                published
                and moment - published < (interval - min(interval / _SLACK_SHARE, _MOST_SLACK)) // _MILLISECOND
                and _clamped(resource.generation) <= (entry >> _GENERATION) & _GENERATION_MASK
                and (decision.trigger is None or _stamp(decision.trigger) == (entry >> _TRIGGER) & _STAMP_MASK)
                and (
                    not decision.is_progress_open
                    or _stamp(resource.progress_key) == (entry >> _PROGRESS) & _STAMP_MASK
                )
            ):
                return PacingVerdict.PACED
        self._admitted.add(key)
        return PacingVerdict.PUBLISH

    def record_published(self, resource: Observation, decision: Decision, now: datetime) -> None:
        """The broker has confirmed the event for this decision, or none ever would; until then it stays due.

        Whatever was asked for by then is answered by the event, whichever reason it had, and whoever had completed
        their part by then is told of by it.
        """
        key = hash(resource.id)
        future = self._table.get(key, 0) >> _FUTURE << _FUTURE
        self._table[key] = (
            future
            | _stamp(resource.progress_key) << _PROGRESS
            | _stamp(decision.trigger) << _TRIGGER
            | _clamped(resource.generation) << _GENERATION
            | _milliseconds(now) << _PUBLISHED
            | self._walk
        )

    def end_cycle(self, *, is_complete: bool) -> int:
        """Ends a cycle; after a complete walk, forgets what was not seen lately and says how many.

        An entry outlives one walk that missed it: between numbered pages a deletion elsewhere can hide a
        resource from one walk, and forgetting it would publish it anew. A walk that broke off proves nothing
        about what it did not reach, so the next one counts as its continuation.
        """
        if not is_complete:
            return 0
        vanished = [
            key
            for key, entry in self._table.items()
            if (self._walk - entry) & _WALK_MASK >= _WALKS_UNTIL_FORGOTTEN
        ]
        for key in vanished:
            del self._table[key]
        self._walk = (self._walk + 1) & _WALK_MASK
        return len(vanished)

    def _forget_publishing(self, key: int, entry: int) -> None:
        future = entry >> _FUTURE << _FUTURE
        if future:
            self._table[key] = future | self._walk
        else:
            del self._table[key]


def _milliseconds(moment: datetime) -> int:
    return max(0, (moment - _EPOCH) // _MILLISECOND) & _TIME_MASK


def _clamped(generation: int) -> int:
    return min(max(generation, 0), _GENERATION_MASK)


def _stamp(value: Hashable | None) -> int:
    """Recognises a value again; 0 for none, and for nothing else."""
    return 0 if value is None else hash(value) & _STAMP_MASK or 1

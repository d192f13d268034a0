"""Pacing: how often the same event is repeated.

A decision reads a status, and a status may stay the same for long: `Unknown` reports are dropped, one of two
adapters may not report, the clock of an adapter may be slow. If only the status counted, such a resource would get
an event at every poll. So the same generation of a resource is published again only when the max age in force has
passed since it was last published. A newer generation, a new trigger and new progress are published at once, each
of them once.

One table serves three purposes: pacing, publishing nothing twice within a cycle, and forgetting resources that are
gone. An entry is dropped when the decision on its resource is to skip, so the table of a healthy fleet is nearly
empty. The table of an unhealthy fleet holds every resource. So an entry is one integer, about 130 bytes with its
key, rather than an object.

The table records what was published when, and no intervals. It survives a change of settings: a rebuilt pulse
takes over the pacer and does not publish the same events again.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

import msgspec

from sentinel.core.pulse.decision import Decision, Policy, decide
from sentinel.core.pulse.observation import Observation


class PacingVerdict(StrEnum):
    """What happens to a resource in this cycle."""

    SKIP = "skip"
    """It is not due."""
    PUBLISH = "publish"
    """It is due."""
    PACED = "paced"
    """It is due, and the same event was published recently."""
    REPEATED = "repeated"
    """It is due, and was already listed in this cycle."""


# Most resources get this one. Looking up an enum member costs more than looking up a resource in the table.
_SKIP = PacingVerdict.SKIP


class PacedDecision(msgspec.Struct, frozen=True, gc=False):
    """A resource, the decision on it, and what happens to it in this cycle."""

    resource: Observation
    decision: Decision
    verdict: PacingVerdict


# An entry, from the low bits up: the walk that last saw the resource, when it was published (0: never), the
# published generation, trigger and progress (0: none), a last-updated time in the future (0: none), and when that
# was first seen. Trigger, progress and last-updated time are only compared for equality, so a hash of each is
# stored. Rare fields are in the high bits, because the size of an integer depends on its highest bit.
_WALK_BITS, _TIME_BITS, _GENERATION_BITS, _HASH_BITS = 8, 44, 48, 32
_PUBLISHED = _WALK_BITS
_GENERATION = _PUBLISHED + _TIME_BITS
_TRIGGER = _GENERATION + _GENERATION_BITS
_PROGRESS = _TRIGGER + _HASH_BITS
_FUTURE = _PROGRESS + _HASH_BITS
_FIRST_SEEN = _FUTURE + _HASH_BITS
_WALK_MASK = (1 << _WALK_BITS) - 1
_TIME_MASK = (1 << _TIME_BITS) - 1
_GENERATION_MASK = (1 << _GENERATION_BITS) - 1
_HASH_MASK = (1 << _HASH_BITS) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WALKS_UNTIL_FORGOTTEN = 2

_SLACK_DIVISOR, _MAX_SLACK = 10, timedelta(milliseconds=500)
"""An interval ends a little early. Polls are not exactly periodic: without slack, a millisecond of jitter would
turn "every ten seconds" into "every fifteen" if the poll interval is five seconds."""


class Pacer:
    """Decides on resources, and remembers which events were published."""

    def __init__(self, *, republish_interval: timedelta | None = None) -> None:
        self.republish_interval = republish_interval
        """Replaces the max age in force; zero turns pacing off. It may be changed between cycles."""
        self._table: dict[int, int] = {}
        self._admitted: set[int] = set()
        self._walk = 0

    def __len__(self) -> int:
        return len(self._table)

    def begin_cycle(self) -> None:
        self._admitted.clear()

    def decide(self, resource: Observation, policy: Policy, now: datetime) -> PacedDecision:
        """Decide on a resource and pace the decision. Remembers that the resource was seen."""
        key = hash(resource.id)
        entry = self._table.get(key)
        updated = resource.last_updated_time
        first_seen = None
        if updated is not None and (entry is not None or updated > now):
            first_seen = self._first_seen(key, entry, updated, now)
            entry = self._table.get(key)
        decision = decide(resource, policy, now, first_seen)
        if decision.is_due:
            return PacedDecision(resource, decision, self._verdict(key, entry, resource, decision, now))
        if entry is not None:
            self._forget_published(key, entry)
        return PacedDecision(resource, decision, _SKIP)

    def record_published(self, resource: Observation, decision: Decision, now: datetime) -> None:
        """Record that the broker has confirmed the event for this decision, or never will; until then it is due.

        The event also answers the trigger and the progress that were open then, whatever its reason was.
        """
        key = hash(resource.id)
        future = self._table.get(key, 0) >> _FUTURE << _FUTURE
        self._table[key] = (
            future
            | _hashed(resource.progress_key) << _PROGRESS
            | _hashed(decision.trigger) << _TRIGGER
            | _clamped(resource.generation) << _GENERATION
            | _milliseconds(now) << _PUBLISHED
            | self._walk
        )

    def end_cycle(self, *, is_complete: bool) -> int:
        """End a cycle. After a complete walk, forget the resources that are gone and return how many.

        An entry survives one walk that missed it. With numbered pages, a deletion elsewhere can hide a resource
        from one walk, and forgetting it would publish it again. An incomplete walk proves nothing about the
        resources that it did not reach, so the next walk counts as its continuation.
        """
        if not is_complete:
            return 0
        gone = [
            key
            for key, entry in self._table.items()
            if (self._walk - entry) & _WALK_MASK >= _WALKS_UNTIL_FORGOTTEN
        ]
        for key in gone:
            del self._table[key]
        self._walk = (self._walk + 1) & _WALK_MASK
        return len(gone)

    def _first_seen(self, key: int, entry: int | None, updated: datetime, now: datetime) -> datetime | None:
        """Return when this last-updated time was first seen, if it lay in the future then."""
        if entry is not None and entry >> _FUTURE:
            if (entry >> _FUTURE) & _HASH_MASK == _hashed(updated):
                first_seen = entry >> _FIRST_SEEN
                if first_seen > _milliseconds(now):
                    # The clock was set back. Count from now, as for the time of publishing.
                    first_seen = _milliseconds(now)
                    self._table[key] = entry & ((1 << _FIRST_SEEN) - 1) | first_seen << _FIRST_SEEN
                return _EPOCH + first_seen * _MILLISECOND
            entry &= (1 << _FUTURE) - 1
            self._table[key] = entry
        if updated <= now:
            return None
        first_seen = _milliseconds(now)
        self._table[key] = (entry or self._walk) | _hashed(updated) << _FUTURE | first_seen << _FIRST_SEEN
        return _EPOCH + first_seen * _MILLISECOND

    def _verdict(
        self, key: int, entry: int | None, resource: Observation, decision: Decision, now: datetime
    ) -> PacingVerdict:
        if key in self._admitted:
            return PacingVerdict.REPEATED
        if entry is not None:
            entry = entry & ~_WALK_MASK | self._walk
            time = _milliseconds(now)
            published = (entry >> _PUBLISHED) & _TIME_MASK
            if published > time:
                # The clock was set back. Count from now, or nothing would be published until it has caught up.
                published = time
                entry = entry & ~(_TIME_MASK << _PUBLISHED) | published << _PUBLISHED
            self._table[key] = entry
            interval = decision.max_age if self.republish_interval is None else self.republish_interval
            if (
                published
                and time - published < _without_slack(interval)
                and _clamped(resource.generation) <= (entry >> _GENERATION) & _GENERATION_MASK
                and (decision.trigger is None or _hashed(decision.trigger) == (entry >> _TRIGGER) & _HASH_MASK)
                and (
                    not decision.is_progress_open
                    or _hashed(resource.progress_key) == (entry >> _PROGRESS) & _HASH_MASK
                )
            ):
                return PacingVerdict.PACED
        self._admitted.add(key)
        return PacingVerdict.PUBLISH

    def _forget_published(self, key: int, entry: int) -> None:
        future = entry >> _FUTURE << _FUTURE
        if future:
            self._table[key] = future | self._walk
        else:
            del self._table[key]


@lru_cache(maxsize=2)
def _milliseconds(time: datetime) -> int:
    # Cached: all resources of a page are decided on at one time, all events of a batch recorded at another.
    return max(0, (time - _EPOCH) // _MILLISECOND) & _TIME_MASK


@lru_cache(maxsize=4)
def _without_slack(interval: timedelta) -> int:
    """Return the interval in milliseconds, a little shorter. Cached: a fleet has two or three."""
    return (interval - min(interval / _SLACK_DIVISOR, _MAX_SLACK)) // _MILLISECOND


def _clamped(generation: int) -> int:
    return min(max(generation, 0), _GENERATION_MASK)


def _hashed(value: Hashable | None) -> int:
    """Return a hash that is 0 for None only."""
    return 0 if value is None else hash(value) & _HASH_MASK or 1

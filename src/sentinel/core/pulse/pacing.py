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

A follower of a leader decides like the leader and records what the leader publishes, without publishing it. When
it becomes the leader, `take_over` corrects the records: the leader saw the fleet at other times, and may have
stopped before it published what the follower recorded.

A pulse may also follow a stream of changes. `streamed` says how polls and the stream share the table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

import msgspec

from sentinel.core.pulse.decision import Decision, Policy, decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.streamed import StreamedEvents


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


class _Takeover(msgspec.Struct, frozen=True):
    """When this process became the leader, and when the leader before it ended; milliseconds since 1970."""

    at: int = 0
    """What was recorded before, the leader has published, or nobody."""
    leader_ended: int = 0
    lag: int = 0

    def corrected(
        self, recorded: int, interval: int, decision: Decision, now: datetime, *, is_first_seen: bool
    ) -> tuple[int, int]:
        """Return when an event that a follower recorded was published at the latest, and how long it is paced.

        Both are 0 if the leader cannot have published it. `is_first_seen`: the status came from a clock that is
        ahead, so its age counts from when it was first seen, which the leader may have done earlier.
        """
        if recorded > self.leader_ended + self.lag:
            # The leader did not publish this one. It may have published the one before, an interval earlier.
            return recorded, self.lag
        expired = (decision.due_time - _EPOCH) // _MILLISECOND - (self.lag if is_first_seen else 0)
        if self.leader_ended < expired and decision.due_time < now:
            return 0, 0  # the status expired later; only an expiry has a time before now
        return min(recorded + self.lag, self.leader_ended), interval


class Pacer:
    """Decides on resources, and remembers which events were published."""

    def __init__(self, *, republish_interval: timedelta | None = None) -> None:
        self.republish_interval = republish_interval
        """Replaces the max age in force; zero turns pacing off. It may be changed between cycles."""
        self._table: dict[int, int] = {}
        self._admitted: set[int] = set()
        self._walk = 0
        self._taken_over = _Takeover()
        self._streamed: StreamedEvents | None = None
        """None while no stream is followed: remembering what polls have seen costs memory."""

    def __len__(self) -> int:
        return len(self._table)

    def begin_cycle(self) -> None:
        self._admitted.clear()

    def decide(self, resource: Observation, policy: Policy, now: datetime) -> PacedDecision:
        """Decide on a resource and pace the decision. Remembers that the resource was seen."""
        key = hash(resource.id)
        if self._streamed is not None:
            published = self._streamed.polled(key, resource)
            if published is not None:
                self._store_published(key, published)
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

    def is_tracking_any(self, decided: Sequence[PacedDecision]) -> bool:
        """Whether the table has an entry for one of these resources, or may get one in this cycle."""
        keys = [hash(each.resource.id) for each in decided]
        return not (self._table.keys().isdisjoint(keys) and self._admitted.isdisjoint(keys))

    def record_published(self, resource: Observation, decision: Decision, now: datetime) -> None:
        """Record that the broker has confirmed the event for this decision, or never will; until then it is due.

        The event also answers the trigger and the progress that were open then, whatever its reason was.
        """
        self._store_published(hash(resource.id), _published_entry(resource, decision, now))

    def follow_stream(self, *, follows_progress: bool) -> None:
        """Begin to remember what polls see, so that changes of a stream can be compared with it.

        Call it for each new pulse on this table. Nothing is news before its first complete walk.
        """
        if self._streamed is None:
            self._streamed = StreamedEvents()
        self._streamed.restart(follows_progress=follows_progress)

    @property
    def needs_every_page(self) -> bool:
        """Whether the next walk has to decide on every resource, for the stream."""
        return self._streamed is not None and not self._streamed.is_complete

    def decide_streamed(self, resource: Observation, policy: Policy, now: datetime) -> PacedDecision | None:
        """Decide on a change that a stream brings; None if it is not news, or polls decide on the resource.

        After the verdict to publish, call `record_streamed` if it was published, and always `end_streamed`.
        """
        streamed, key = self._streamed, hash(resource.id)
        if streamed is None or not streamed.is_news(key, resource):
            return None
        decision = decide(resource, policy, now)
        if not decision.is_due:
            streamed.skipped(key, resource)
            return PacedDecision(resource, decision, _SKIP)
        if decision.reason.is_expiry:
            return None  # the status may be older than the one that a poll would see
        entry = self._table.get(key)
        if entry is not None and self._is_paced(entry, resource, decision, now):
            return PacedDecision(resource, decision, PacingVerdict.PACED)
        streamed.begin(key, resource)
        return PacedDecision(resource, decision, PacingVerdict.PUBLISH)

    def record_streamed(self, resource: Observation, decision: Decision, now: datetime) -> None:
        """Record that the broker has confirmed the event for a change of the stream, or never will."""
        if self._streamed is not None:
            entry = _published_entry(resource, decision, now)
            self._streamed.published(hash(resource.id), resource, entry, now)

    def end_streamed(self, resource: Observation) -> None:
        """End publishing a change of the stream. Idempotent."""
        if self._streamed is not None:
            self._streamed.end(hash(resource.id), resource)

    def take_over(self, *, leader_ended: datetime, lag: timedelta, now: datetime) -> None:
        """Continue after a leader that began its last cycle at `leader_ended`, and perhaps did not complete it.

        `lag` is the poll interval: the leader publishes an event up to that much earlier or later than a follower
        records it.
        """
        self._taken_over = _Takeover(
            at=(now - _EPOCH) // _MILLISECOND,
            leader_ended=(leader_ended - _EPOCH) // _MILLISECOND,
            lag=lag // _MILLISECOND,
        )

    def forget_published(self) -> None:
        """Forget everything that was recorded as published, because no leader has published it."""
        for key, entry in list(self._table.items()):
            self._forget_published(key, entry)

    def end_cycle(self, *, is_complete: bool, resources: int = 0) -> int:
        """End a cycle. After a complete walk of this many resources, forget those that are gone; return how many.

        An entry survives one walk that missed it. With numbered pages, a deletion elsewhere can hide a resource
        from one walk, and forgetting it would publish it again. An incomplete walk proves nothing about the
        resources that it did not reach, so the next walk counts as its continuation.
        """
        if not is_complete:
            return 0
        if self._streamed is not None:
            self._streamed.end_walk(resources)
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
            if self._is_paced(entry, resource, decision, now):
                return PacingVerdict.PACED
        if self._streamed is not None and self._streamed.is_in_flight(key, resource):
            return PacingVerdict.PACED
        self._admitted.add(key)
        return PacingVerdict.PUBLISH

    def _is_paced(self, entry: int, resource: Observation, decision: Decision, now: datetime) -> bool:
        """Whether an event that says the same was published recently."""
        time = _milliseconds(now)
        published = min((entry >> _PUBLISHED) & _TIME_MASK, time)
        interval = decision.max_age if self.republish_interval is None else self.republish_interval
        shortest = _without_slack(interval)
        if published < self._taken_over.at:
            published, shortest = self._taken_over.corrected(
                published, shortest, decision, now, is_first_seen=bool(entry >> _FUTURE)
            )
        return (
            published != 0
            and time - published < shortest
            and _clamped(resource.generation) <= (entry >> _GENERATION) & _GENERATION_MASK
            and (decision.trigger is None or _hashed(decision.trigger) == (entry >> _TRIGGER) & _HASH_MASK)
            and (
                not decision.is_progress_open
                or _hashed(resource.progress_key) == (entry >> _PROGRESS) & _HASH_MASK
            )
        )

    def _store_published(self, key: int, published: int) -> None:
        self._table[key] = self._table.get(key, 0) >> _FUTURE << _FUTURE | published | self._walk

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


def _published_entry(resource: Observation, decision: Decision, now: datetime) -> int:
    """An entry for an event that was published now, without its walk."""
    return (
        _hashed(resource.progress_key) << _PROGRESS
        | _hashed(decision.trigger) << _TRIGGER
        | _clamped(resource.generation) << _GENERATION
        | _milliseconds(now) << _PUBLISHED
    )


def _clamped(generation: int) -> int:
    return min(max(generation, 0), _GENERATION_MASK)


def _hashed(value: Hashable | None) -> int:
    """Return a hash that is 0 for None only."""
    return 0 if value is None else hash(value) & _HASH_MASK or 1

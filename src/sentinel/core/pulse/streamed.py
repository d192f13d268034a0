"""Which changes of a stream are news, and what was published because of them.

A pulse polls, and a stream tells it about changes in between. Both show the same resources at different times: a
page may be older than a change that has arrived, and a stream may lag, repeat itself, or be wrong. Three rules
keep events from being lost or published twice, whatever the order:

* Polls decide as if there were no stream. Only a poll makes a resource due by time alone.
* A change is news if its generation, its requested pulse or its progress is newer than any that a poll has seen or
  the stream has published. Only news are published, so a change that is late or repeated publishes nothing.
* An event that the stream published is kept here until a poll sees the change that caused it. Then it counts as if
  that poll had published it at that time. If polls never see the change, because the stream was wrong, they decide
  without it, and the stream does not publish it again.

Changes are compared with what the last poll saw, so one integer is kept for each resource. Resources that are gone
are not noticed one by one, because pages that did not change are not read. When too many have accumulated, all are
forgotten, and nothing is news until a walk has read every page again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.version_table import VersionTable

_KEPT_FOR = timedelta(hours=1)
"""How long an event is kept whose change no poll has seen."""
_MAX_PER_RESOURCE = 8
"""How many events of one resource are kept."""
_SPARE = 1000
"""How many more resources than twice the fleet are remembered."""

# A version of a resource, from the low bits up: its generation, its progress, and when a pulse was requested. Most
# resources have a small generation and little else, so their version fits into 64 bits.
_GENERATION_BITS, _PROGRESS_BITS = 48, 32
_PROGRESS, _TRIGGER = _GENERATION_BITS, _GENERATION_BITS + _PROGRESS_BITS
_GENERATION_MASK = (1 << _GENERATION_BITS) - 1
_PROGRESS_MASK = (1 << _PROGRESS_BITS) - 1


class _StreamedEvent(msgspec.Struct, frozen=True):
    version: int
    entry: int
    """The entry for the pacing table."""
    at: datetime


class StreamedEvents:
    """What polls have seen of each resource, and what the stream has published that they have not seen yet.

    Resources are identified by the keys of the pacing table.
    """

    def __init__(self) -> None:
        self.follows_progress = False
        """Whether progress is a reason for an event. Otherwise it is not remembered, which saves memory."""
        self.is_complete = False
        """Whether the polls have seen every resource. Until then nothing is news."""
        self._seen = VersionTable()
        self._in_flight: dict[int, int] = {}
        self._published: dict[int, tuple[_StreamedEvent, ...]] = {}
        """The oldest event first. The resource with the oldest last event is first."""

    def __len__(self) -> int:
        return len(self._seen)

    def restart(self, *, follows_progress: bool) -> None:
        """Begin for a new pulse, which may watch other resources. What was published is kept."""
        self.follows_progress = follows_progress
        self.is_complete = False
        self._seen.clear()
        self._in_flight.clear()

    def polled(self, key: int, resource: Observation) -> int | None:
        """Remember what a poll saw. Return the pacing entry of an event that the stream published for it, once."""
        version = resource.generation
        # Most resources have no other part, and this runs for every resource of a changed page.
        if (
            self.follows_progress
            or resource.pulse_requested_time is not None
            or not 0 <= version <= _GENERATION_MASK
        ):
            version = self._version(resource)
        self._seen.put(key, version)
        if not self._published:
            return None
        events = self._published.get(key, ())
        unseen = tuple(each for each in events if _has_news(each.version, version))
        if unseen:
            self._published[key] = unseen
        elif events:
            del self._published[key]
        return next((each.entry for each in reversed(events) if each not in unseen), None)

    def end_walk(self, resources: int) -> None:
        """End a walk that has seen every resource; `resources` is how many there are."""
        self.is_complete = len(self._seen) <= 2 * resources + _SPARE
        if not self.is_complete:
            self._seen.clear()

    def is_news(self, key: int, resource: Observation) -> bool:
        """Whether a change that the stream brings may be published."""
        if not self.is_complete:
            return False
        version = self._version(resource)
        known = [each.version for each in self._published.get(key, ())]
        known += [each for each in (self._seen.get(key), self._in_flight.get(key)) if each is not None]
        return all(_has_news(version, each) for each in known)

    def is_in_flight(self, key: int, resource: Observation) -> bool:
        """Whether an event for exactly this version is being published."""
        return self._in_flight.get(key) == self._version(resource)

    def skipped(self, key: int, resource: Observation) -> None:
        """Remember a change that is not due, so that an older one is not news."""
        self._seen.put(key, _newest(self._version(resource), self._seen.get(key) or 0))

    def begin(self, key: int, resource: Observation) -> None:
        """Begin to publish an event for a change."""
        self._in_flight[key] = self._version(resource)

    def published(self, key: int, resource: Observation, entry: int, now: datetime) -> None:
        """Keep an event that was published until a poll sees the change."""
        events = (*self._published.pop(key, ()), _StreamedEvent(self._version(resource), entry, now))
        self._published[key] = events[-_MAX_PER_RESOURCE:]
        while self._published[oldest := next(iter(self._published))][-1].at < now - _KEPT_FOR:
            del self._published[oldest]

    def end(self, key: int, resource: Observation) -> None:
        """End publishing. If the event was not published, the next poll does."""
        if self._in_flight.get(key) == self._version(resource):
            del self._in_flight[key]

    def _version(self, resource: Observation) -> int:
        version = min(max(resource.generation, 0), _GENERATION_MASK)
        if self.follows_progress and resource.progress_count > 0:
            version |= min(resource.progress_count, _PROGRESS_MASK) << _PROGRESS
        if resource.pulse_requested_time is not None:
            version |= max(0, int(resource.pulse_requested_time.timestamp() * 1000)) << _TRIGGER
        return version


def _parts(version: int) -> tuple[int, int, int]:
    return version & _GENERATION_MASK, version >> _PROGRESS & _PROGRESS_MASK, version >> _TRIGGER


def _has_news(version: int, known: int) -> bool:
    """Whether a part of the version is newer than the known one."""
    return version != known and any(new > old for new, old in zip(_parts(version), _parts(known), strict=True))


def _newest(version: int, known: int) -> int:
    """Return the newest of each part."""
    generation, progress, trigger = map(max, _parts(version), _parts(known))
    return generation | progress << _PROGRESS | trigger << _TRIGGER

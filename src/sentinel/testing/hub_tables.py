"""The tables of the hub in memory, and the queries on them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final, TypeAlias

import msgspec

from sentinel.core.hub.metrics_samples import Sample, thin_out
from sentinel.core.hub.states import CONNECTED, State
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import (
    THINNED_INTERVAL,
    Config,
    ConfigVersion,
    Heartbeats,
    HubEvent,
    InstancePage,
    InstanceQuery,
    InstanceRecord,
)

Series: TypeAlias = tuple[str, int]
"""An instance and its incarnation."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class InstanceTable(dict[str, InstanceRecord]):
    """The instances by id."""

    def find(self, query: InstanceQuery) -> InstancePage:
        matching = [
            each
            for each in self._ordered()
            if _has_state(each, query.states) and (query.matches is None or query.matches(each.labels))
        ]
        following = [each for each in matching if each.id > query.after]
        return InstancePage(following[: query.limit], len(matching), is_last=len(following) <= query.limit)

    def silent(self, before: datetime, limit: int) -> list[InstanceRecord]:
        found = [each for each in self._ordered() if each.life.state in CONNECTED and each.life.last_seen < before]
        return sorted(found, key=lambda each: each.life.last_seen)[:limit]

    def leaving(self, offline_before: datetime, drain_before: datetime, limit: int) -> list[str]:
        def is_leaving(instance: InstanceRecord) -> bool:
            life = instance.life
            if life.state is State.OFFLINE:
                return life.since < offline_before
            return life.state is State.DRAINING and life.drain is not None and life.drain.deadline < drain_before

        found = sorted((each.life.state, each.id) for each in self.values() if is_leaving(each))
        return [instance_id for _, instance_id in found[:limit]]

    def out_of_sync(self, limit: int) -> list[InstanceRecord]:
        return [each for each in self._present() if not each.sync.is_in_sync][:limit]

    def assigned_counts(self, config_ids: Collection[str]) -> dict[str, int]:
        assignments = (each.sync.assignment for each in self._present())
        counts = Counter(each.version.config_id for each in assignments if each is not None)
        return {each: counts[each] for each in config_ids if counts[each]}

    def was_removed(self, instance_id: str, before: datetime) -> bool:
        life = self[instance_id].life
        return life.state is State.REMOVED and life.since < before

    def _ordered(self) -> Iterable[InstanceRecord]:
        return (self[each] for each in sorted(self))

    def _present(self) -> Iterable[InstanceRecord]:
        return (each for each in self._ordered() if each.life.state is not State.REMOVED)


class MetricsTable:
    """The samples of each series by time, and which of them were not thinned out yet."""

    def __init__(self) -> None:
        self._samples: dict[Series, dict[datetime, Sample]] = {}
        self._is_raw: dict[Series, set[datetime]] = {}

    def add(self, series: Series, samples: Iterable[Sample]) -> None:
        stored, raw = self._samples.setdefault(series, {}), self._is_raw.setdefault(series, set())
        for sample in samples:
            if stored.setdefault(sample.time, sample) is sample:
                raw.add(sample.time)

    def read(self, series: Series, since: datetime, limit: int) -> list[Sample]:
        return [each for each in self._ascending(series) if each.time >= since][:limit]

    def thin(self, before: datetime, limit: int) -> int:
        raw = self._oldest(self._is_raw)
        whole = [(number, series) for number, series, _ in raw if number < _interval(before)]
        return sum(self._thin_interval(series, number) for number, series in {*whole[:limit]})

    def _thin_interval(self, series: Series, number: int) -> int:
        near = [each for each in self._ascending(series) if _interval(each.time) in (number - 1, number)]
        within = {each.time for each in near if _interval(each.time) == number}
        kept = {each.time for each in thin_out(near, THINNED_INTERVAL)}
        considered = within & self._is_raw[series]
        self._is_raw[series] -= considered
        for time in within - kept:
            del self._samples[series][time]
        return len(considered)

    def expire(self, before: datetime, limit: int) -> int:
        old = [(series, time) for _, series, time in self._oldest(self._samples) if time < before][:limit]
        for series, time in old:
            del self._samples[series][time]
            self._is_raw[series].discard(time)
        return len(old)

    def _oldest(self, times: Mapping[Series, Iterable[datetime]]) -> list[tuple[int, Series, datetime]]:
        """Samples with the numbers of their intervals, of the oldest intervals first."""
        return sorted((_interval(time), series, time) for series, own in times.items() for time in own)

    def _ascending(self, series: Series) -> list[Sample]:
        return [sample for _, sample in sorted(self._samples.get(series, {}).items())]


class EventTable:
    """The log of events."""

    def __init__(self) -> None:
        self.newest = 0
        self.listeners: list[asyncio.Event] = []
        self._events: list[HubEvent] = []

    @property
    def oldest(self) -> int:
        return self._events[0].number if self._events else self.newest + 1

    def append(self, events: Iterable[HubEvent]) -> None:
        """Append events, which get their numbers, and wake readers."""
        for event in events:
            self.newest += 1
            self._events.append(msgspec.structs.replace(event, number=self.newest))
        for listener in self.listeners:
            listener.set()

    def read(self, after: int, limit: int) -> list[HubEvent]:
        start = bisect_right(self._events, after, key=lambda event: event.number)
        return self._events[start : start + limit]

    def expire(self, before: datetime, limit: int) -> int:
        old = len(list(islice(takewhile(lambda event: event.time < before, self._events), limit)))
        del self._events[:old]
        return old


class HubTables:
    """All tables."""

    def __init__(self) -> None:
        self.instances = InstanceTable()
        self.configs: dict[str, Config] = {}
        self.versions: dict[VersionName, ConfigVersion] = {}
        self.assigned: dict[tuple[Series, VersionName], bool] = {}
        """The versions that each incarnation has ever been assigned."""
        self.metrics = MetricsTable()
        self.events = EventTable()

    def expire_removed(self, before: datetime, limit: int) -> int:
        removed = [each for each in sorted(self.instances) if self.instances.was_removed(each, before)][:limit]
        for instance_id in removed:
            del self.instances[instance_id]
        for key in [each for each in self.assigned if each[0][0] in removed]:
            del self.assigned[key]
        return len(removed)

    def flush(self, heartbeats: Iterable[Heartbeats]) -> None:
        for beats in heartbeats:
            found = self.instances.get(beats.instance_id)
            if found is None or found.life.incarnation != beats.incarnation:
                continue
            self.metrics.add((beats.instance_id, beats.incarnation), beats.samples)
            if found.life.session == beats.session and found.life.last_seen <= beats.last_seen:
                self.instances[beats.instance_id] = _after(found, beats)

    def samples(self, instance_id: str, since: datetime, limit: int) -> Sequence[Sample]:
        found = self.instances.get(instance_id)
        return () if found is None else self.metrics.read((found.id, found.life.incarnation), since, limit)

    def versions_of(self, config_id: str, before: int | None, limit: int) -> list[ConfigVersion]:
        names = sorted((each for each in self.versions if each.config_id == config_id), reverse=True)
        wanted = [name for name in names if before is None or name.number < before][:limit]
        return [msgspec.structs.replace(self.versions[name], content="") for name in wanted]


def _interval(time: datetime) -> int:
    return (time - _EPOCH) // THINNED_INTERVAL


def _has_state(instance: InstanceRecord, states: Collection[State]) -> bool:
    return instance.life.state in states if states else instance.life.state is not State.REMOVED


def _after(instance: InstanceRecord, beats: Heartbeats) -> InstanceRecord:
    times = [each for each in (instance.sync.last_in_sync, beats.last_in_sync) if each is not None]
    return msgspec.structs.replace(
        instance,
        life=msgspec.structs.replace(instance.life, last_seen=beats.last_seen, message=beats.message),
        status=beats.status,
        sync=msgspec.structs.replace(
            instance.sync, reported_hash=beats.reported_hash, last_in_sync=max(times, default=None)
        ),
    )

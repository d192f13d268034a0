"""A store of the hub in memory.

It passes the same contract suite as SQLite and PostgreSQL. `Fault.LOST_RACE` runs the work of a transaction twice,
as those may.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import (
    Config,
    ConfigTaken,
    ConfigVersion,
    Heartbeats,
    HubEvent,
    HubEventType,
    HubTransaction,
    InstancePage,
    InstanceQuery,
    InstanceRecord,
    VersionTaken,
)
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.hub_tables import HubTables
from sentinel.testing.rollouts import MemoryRollouts, MemoryRolloutTransaction
from sentinel.testing.transaction import transact

T = TypeVar("T")


class MemoryHubStore(MemoryRollouts):
    """A verified fake of `ports.hub_store.HubStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._tables = database.tables(HubTables)

    async def transact(self, work: Callable[[HubTransaction], T]) -> T:
        return await transact(self._database, lambda: MemoryHubTransaction(self._database), work)

    async def instance(self, instance_id: str) -> InstanceRecord | None:
        return await self._database.call("instance", lambda: self._tables.instances.get(instance_id))

    async def instances(self, query: InstanceQuery) -> InstancePage:
        return await self._database.call("instances", lambda: self._tables.instances.find(query))

    async def instances_by_id(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        def read() -> dict[str, InstanceRecord]:
            return {each: found for each in instance_ids if (found := self._tables.instances.get(each))}

        return await self._database.call("instances_by_id", read)

    async def silent(self, before: datetime, *, limit: int) -> Sequence[InstanceRecord]:
        return await self._database.call("silent", lambda: self._tables.instances.silent(before, limit))

    async def leaving(self, *, offline_before: datetime, drain_before: datetime, limit: int) -> Sequence[str]:
        return await self._database.call(
            "leaving", lambda: self._tables.instances.leaving(offline_before, drain_before, limit)
        )

    async def count_by_state(self) -> Mapping[State, int]:
        def count() -> dict[State, int]:
            return dict(Counter(each.life.state for each in self._tables.instances.values()))

        return await self._database.call("count_by_state", count)

    async def out_of_sync(self, *, limit: int) -> Sequence[InstanceRecord]:
        return await self._database.call("out_of_sync", lambda: self._tables.instances.out_of_sync(limit))

    async def expire_removed(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_removed", lambda: self._tables.expire_removed(before, limit))

    async def flush(self, heartbeats: Sequence[Heartbeats]) -> None:
        await self._database.call("flush", lambda: self._tables.flush(heartbeats))

    async def metrics(self, instance_id: str, *, since: datetime, limit: int) -> Sequence[Sample]:
        return await self._database.call("metrics", lambda: self._tables.samples(instance_id, since, limit))

    async def thin_metrics(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("thin_metrics", lambda: self._tables.metrics.thin(before, limit))

    async def expire_metrics(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_metrics", lambda: self._tables.metrics.expire(before, limit))

    async def config(self, config_id: str) -> Config | None:
        return await self._database.call("config", lambda: self._tables.configs.get(config_id))

    async def configs(self, *, after: str, limit: int) -> Sequence[Config]:
        def read() -> list[Config]:
            return [each for key, each in sorted(self._tables.configs.items()) if key > after][:limit]

        return await self._database.call("configs", read)

    async def count_configs(self) -> int:
        return await self._database.call("count_configs", lambda: len(self._tables.configs))

    async def assigned_counts(self, config_ids: Collection[str]) -> Mapping[str, int]:
        return await self._database.call(
            "assigned_counts", lambda: self._tables.instances.assigned_counts(config_ids)
        )

    async def version(self, name: VersionName) -> ConfigVersion | None:
        return await self._database.call("version", lambda: self._tables.versions.get(name))

    async def versions(self, config_id: str, *, before: int | None, limit: int) -> Sequence[ConfigVersion]:
        return await self._database.call("versions", lambda: self._tables.versions_of(config_id, before, limit))

    async def was_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> bool:
        key = ((instance_id, incarnation), version)
        return await self._database.call("was_assigned", lambda: key in self._tables.assigned)

    async def newest_event(self) -> int:
        return await self._database.call("newest_event", lambda: self._tables.events.newest)

    async def oldest_event(self) -> int:
        return await self._database.call("oldest_event", lambda: self._tables.events.oldest)

    async def events(self, after: int, *, limit: int) -> Sequence[HubEvent]:
        return await self._database.call("events", lambda: self._tables.events.read(after, limit))

    async def expire_events(self, before: datetime, *, limit: int) -> int:
        return await self._database.call("expire_events", lambda: self._tables.events.expire(before, limit))

    @asynccontextmanager
    async def wakeups(self) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self._tables.events.listeners.append(event)
        try:
            yield event
        finally:
            self._tables.events.listeners.remove(event)


class MemoryHubTransaction(MemoryRolloutTransaction):
    """A transaction on the hub's tables in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._tables = database.tables(HubTables)
        self._locked: set[object] = set()
        self._events: list[HubEvent] = []

    def instance(self, instance_id: str) -> InstanceRecord | None:
        self._require_open()
        self._locked.add(("instance", instance_id))
        return self._tables.instances.get(instance_id)

    def save_instance(self, instance: InstanceRecord) -> None:
        self._require_locked("instance", instance.id)
        self._assign(self._tables.instances, instance.id, instance)

    def note_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> None:
        self._require_open()
        self._assign(self._tables.assigned, ((instance_id, incarnation), version), value=True)

    def config(self, config_id: str) -> Config | None:
        self._require_open()
        self._locked.add(("configuration", config_id))
        return self._tables.configs.get(config_id)

    def keep_config(self, config_id: str) -> bool:
        self._require_open()
        return config_id in self._tables.configs

    def add_config(self, config: Config) -> None:
        self._require_open()
        if config.id in self._tables.configs:
            raise self._abort(ConfigTaken(f"the configuration {config.id} exists"))
        self._locked.add(("configuration", config.id))
        self._assign(self._tables.configs, config.id, config)

    def save_config(self, config: Config) -> None:
        self._require_locked("configuration", config.id)
        self._assign(self._tables.configs, config.id, config)

    def remove_config(self, config_id: str) -> None:
        self._require_locked("configuration", config_id)
        self._assign(self._tables.configs, config_id, None)
        for name in [each for each in self._tables.versions if each.config_id == config_id]:
            self._assign(self._tables.versions, name, None)
        for assigned in [each for each in self._tables.assigned if each[1].config_id == config_id]:
            self._assign(self._tables.assigned, assigned, None)

    def version(self, name: VersionName) -> ConfigVersion | None:
        self._require_open()
        return self._tables.versions.get(name)

    def add_version(self, version: ConfigVersion) -> None:
        self._require_open()
        name = VersionName(version.config_id, version.version)
        if name in self._tables.versions:
            raise self._abort(VersionTaken(f"the version {name} exists"))
        self._assign(self._tables.versions, name, version)

    def count_assigned(self, config_id: str) -> int:
        self._require_open()
        return self._tables.instances.assigned_counts([config_id]).get(config_id, 0)

    def append_event(self, event_type: HubEventType, subject: str, data: bytes, time: datetime) -> None:
        self._require_open()
        self._events.append(HubEvent(number=0, time=time, type=event_type, subject=subject, data=data))

    def committed(self) -> None:
        if self._events:
            self._tables.events.append(self._events)

    def _require_locked(self, kind: str, name: str) -> None:
        self._require_open()
        if (kind, name) not in self._locked:
            raise RuntimeError(f"the {kind} {name} was not read in this transaction")

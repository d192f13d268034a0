"""The store of the hub on SQL, for both SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Final, TypeVar

from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import MAX_NUMBER, VersionName
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.statements import Session, SqlDatabase
from sentinel.drivers.sql.hub import instance_pages, metrics, rows, statements
from sentinel.drivers.sql.hub.event_log import CHANNEL, EventLog
from sentinel.drivers.sql.hub.rollouts import SqlRollouts
from sentinel.drivers.sql.hub.transaction import RegisteredMeanwhile, SqlHubTransaction
from sentinel.ports.hub_store import (
    Config,
    ConfigVersion,
    Heartbeats,
    HubEvent,
    HubTransaction,
    InstancePage,
    InstanceQuery,
    InstanceRecord,
)

T = TypeVar("T")
Tx = TypeVar("Tx", bound=SqlHubTransaction)

_ABOVE_ALL: Final = MAX_NUMBER + 1


async def transact(database: SqlDatabase, begin: Callable[[Session], Tx], work: Callable[[Tx], T]) -> T:
    """Run the work in a transaction and return its result once that is durable. Announces its events."""
    attempts: list[Tx] = []

    def perform(session: Session) -> T:
        attempts.append(begin(session))
        return attempts[-1].perform(work)

    try:
        while True:
            with suppress(RegisteredMeanwhile):
                return await database.write(perform)
    finally:
        # After a failure or a cancellation too: the commit may have taken effect.
        if any(each.has_events for each in attempts):
            database.announce(CHANNEL)


class SqlHubStore(SqlRollouts):
    """`ports.hub_store.HubStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._log = EventLog(database)

    async def transact(self, work: Callable[[HubTransaction], T]) -> T:
        return await transact(self._database, SqlHubTransaction, work)

    async def instance(self, instance_id: str) -> InstanceRecord | None:
        found = await self._rows(statements.INSTANCE, id=instance_id)
        return rows.to_instance(found[0]) if found else None

    async def instances(self, query: InstanceQuery) -> InstancePage:
        return await self._database.read(lambda session: instance_pages.find(session, query))

    async def instances_by_id(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        return await self._database.read(lambda session: instance_pages.by_id(session, instance_ids))

    async def silent(self, before: datetime, *, limit: int) -> Sequence[InstanceRecord]:
        found = await self._rows(statements.SILENT, before=to_micros(before), limit=limit)
        return [rows.to_instance(row) for row in found]

    async def leaving(self, *, offline_before: datetime, drain_before: datetime, limit: int) -> Sequence[str]:
        found = await self._rows(
            statements.LEAVING,
            offline_before=to_micros(offline_before),
            drain_before=to_micros(drain_before),
            limit=limit,
        )
        return [row[0] for row in found]

    async def count_by_state(self) -> Mapping[State, int]:
        return {State(row[0]): row[1] for row in await self._rows(statements.COUNT_BY_STATE)}

    async def out_of_sync(self, *, limit: int) -> Sequence[InstanceRecord]:
        return [rows.to_instance(row) for row in await self._rows(statements.OUT_OF_SYNC, limit=limit)]

    async def expire_removed(self, before: datetime, *, limit: int) -> int:
        def delete(session: Session) -> int:
            found = [
                row[0] for row in session.rows(statements.LOCK_REMOVED, before=to_micros(before), limit=limit)
            ]
            for statement in statements.DELETE_REMOVED if found else ():
                session.run(statement, ids=rows.json_texts(found))
            return len(found)

        return await self._database.write(delete)

    async def flush(self, heartbeats: Sequence[Heartbeats]) -> None:
        await self._database.write(lambda session: metrics.flush(session, heartbeats))

    async def metrics(self, instance_id: str, *, since: datetime, limit: int) -> Sequence[Sample]:
        found = await self._database.read(lambda session: metrics.read(session, instance_id, since, limit))
        return [rows.to_sample(row) for row in found]

    async def thin_metrics(self, before: datetime, *, limit: int) -> int:
        return await self._database.write(lambda session: metrics.thin(session, before, limit))

    async def expire_metrics(self, before: datetime, *, limit: int) -> int:
        return await self._database.write(lambda session: metrics.expire(session, before, limit))

    async def config(self, config_id: str) -> Config | None:
        found = await self._rows(statements.CONFIG, id=config_id)
        return rows.to_config(found[0]) if found else None

    async def configs(self, *, after: str, limit: int) -> Sequence[Config]:
        return [rows.to_config(row) for row in await self._rows(statements.CONFIGS, after=after, limit=limit)]

    async def count_configs(self) -> int:
        return int((await self._rows(statements.COUNT_CONFIGS))[0][0])

    async def assigned_counts(self, config_ids: Collection[str]) -> Mapping[str, int]:
        found = await self._rows(statements.ASSIGNED_COUNTS, ids=rows.json_texts(config_ids))
        return {row[0]: row[1] for row in found}

    async def version(self, name: VersionName) -> ConfigVersion | None:
        found = await self._rows(statements.VERSION, config_id=name.config_id, number=name.number)
        return rows.to_version(found[0]) if found else None

    async def versions(self, config_id: str, *, before: int | None, limit: int) -> Sequence[ConfigVersion]:
        found = await self._rows(
            statements.VERSIONS,
            config_id=config_id,
            before=_ABOVE_ALL if before is None else before,
            limit=limit,
        )
        return [rows.to_version(row) for row in found]

    async def was_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> bool:
        return bool(
            await self._rows(statements.WAS_ASSIGNED, **rows.assigned_values(instance_id, incarnation, version))
        )

    async def newest_event(self) -> int:
        return await self._log.newest()

    async def oldest_event(self) -> int:
        return await self._log.oldest()

    async def events(self, after: int, *, limit: int) -> Sequence[HubEvent]:
        return [rows.to_event(row) for row in await self._log.read(after, limit)]

    async def expire_events(self, before: datetime, *, limit: int) -> int:
        return await self._log.expire(before, limit)

    def wakeups(self) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._database.listening(CHANNEL)

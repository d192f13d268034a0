"""Notices what only the passing of time changes.

Silent instances become offline, those that were offline for too long drain, and draining ones are removed after a
timeout. Several hubs may sweep at once: each change is decided again in its transaction, by what is stored then.

What another hub has heard is stored some seconds later, so an instance that this process has not heard of itself
counts as silent only after the interval of the flusher, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sentinel.core.hub.instance import StateChanged, Timeouts, TimePassed, advance, next_deadline
from sentinel.core.hub.states import CONNECTED
from sentinel.hub import flusher, instance_changes
from sentinel.hub.observer import HubObserver
from sentinel.hub.registry import Registry, with_reports
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubStore, HubTransaction, InstanceRecord
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

INTERVAL: Final = timedelta(seconds=1)
_BATCH: Final = 500
_CONCURRENT: Final = 32
"""Transactions at the same time, which databases commit together."""


class Sweeper:
    """Lets time pass for all instances."""

    def __init__(
        self,
        *,
        store: HubStore,
        registry: Registry,
        timeouts: Timeouts,
        clock: Clock,
        observer: HubObserver,
        log: Log,
    ) -> None:
        self._store = store
        self._registry = registry
        self._timeouts = timeouts
        self._clock = clock
        self._observer = observer
        self._log = log
        self._listening_since = clock.now()
        """Since when agents could reach a hub. Silence before it does not count."""

    async def run(self, stopping: Stopping) -> None:
        """Sweep until stopped. A failed sweep is logged, and the next one does its work."""
        self._listening_since = self._clock.now()
        while not await stopping.interrupts(self._clock.sleep(INTERVAL)):
            try:
                await self.sweep()
            except Unavailable as error:
                self._log.warning("sweep.failed", error=error)
                # Nobody could register meanwhile, which must not be held against an instance.
                self._listening_since = self._clock.now()
            except Exception as error:
                self._log.exception("sweep.failed", error=error)

    async def sweep(self) -> None:
        """Change the state of every instance whose time has come. Raises `Unavailable`."""
        now = self._clock.now()
        timeouts = self._timeouts
        while True:
            silent = await self._store.silent(now - timeouts.offline_threshold, limit=_BATCH)
            due = [each.id for each in silent if self._is_due(each, now)]
            await self._pass_time_for(due, now)
            if len(silent) < _BATCH or not due:
                break
        while True:
            leaving = await self._store.leaving(
                offline_before=now - timeouts.remove_after, drain_before=now, limit=_BATCH
            )
            if not await self._pass_time_for(leaving, now) or len(leaving) < _BATCH:
                break
        self._registry.forget(lambda known: now - known.life.last_seen > 2 * timeouts.offline_threshold)

    async def _pass_time_for(self, instance_ids: Sequence[str], now: datetime) -> int:
        """Return how many have changed."""
        changed = 0
        for start in range(0, len(instance_ids), _CONCURRENT):
            chunk = instance_ids[start : start + _CONCURRENT]
            results = await asyncio.gather(*(self._pass_time(each, now) for each in chunk), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                changed += result
        return changed

    async def _pass_time(self, instance_id: str, now: datetime) -> bool:
        """Return whether its state has changed."""

        def work(transaction: HubTransaction) -> Sequence[StateChanged]:
            stored = transaction.instance(instance_id)
            if stored is None or not self._is_due(stored, now):
                return ()
            life, commands = advance(stored.life, TimePassed(self._listening_since), now, self._timeouts)
            if not instance_changes.has_changed_state(commands):
                return ()
            return instance_changes.save(transaction, instance_changes.with_life(stored, life), commands, now)

        changes = await self._store.transact(work)
        if changes and self._registry.get(instance_id) is not None:
            await self._registry.refresh(instance_id)
        for change in changes:
            self._observer.state_changed(instance_id, change)
        return bool(changes)

    def _is_due(self, stored: InstanceRecord, now: datetime) -> bool:
        """Whether time changes the state of an instance, by what is stored and what this process has heard.

        A transaction may call it on another thread.
        """
        known = self._registry.get(stored.id)
        heard = None if known is None else known.record
        current = stored if heard is None else with_reports(stored, heard)
        deadline = next_deadline(current.life, self._listening_since, self._timeouts)
        if deadline is None:
            return False
        if current.life.state in CONNECTED and not (known and known.heard_time >= stored.life.last_seen):
            deadline += flusher.INTERVAL
        return deadline <= now

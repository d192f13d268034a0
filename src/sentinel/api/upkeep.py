"""What the fleet API does on its own: conditions that follow the kinds file, and retention.

Both are loops over bounded steps that may stop anywhere and be repeated: several servers on one database do the
same work twice at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sentinel.api.change import adapters_of
from sentinel.api.kinds import Kinds
from sentinel.api.service import FleetService
from sentinel.api.settings import RetentionSettings
from sentinel.ports import Clock
from sentinel.ports.fleet_store import FleetStore, Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.stopping import Stopping
from sentinel.runtime.telemetry import Log

BATCH = 500
EVERY = timedelta(minutes=1)
_RETRY = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1), jitter=0.0)


class Upkeep:
    """The loops."""

    def __init__(
        self,
        *,
        service: FleetService,
        store: FleetStore,
        kinds: Kinds,
        retention: RetentionSettings,
        clock: Clock,
        log: Log,
    ) -> None:
        self._service = service
        self._store = store
        self._kinds = kinds
        self._retention = retention
        self._clock = clock
        self._log = log

    async def aggregate_anew(self, stopping: Stopping) -> None:
        """Brings the conditions of every resource up to the adapters that its kind requires, then waits."""
        failures = 0
        while not stopping.requested:
            try:
                await self._catch_up(stopping)
                break
            except Unavailable as error:
                self._log.warning("upkeep.failed", task="aggregate", error=error)
                await stopping.interrupts(self._clock.sleep(_RETRY.delay(failures, 0.0)))
                failures += 1
        await stopping.wait()

    async def _catch_up(self, stopping: Stopping) -> None:
        for kind in self._kinds:
            refreshed = 0
            while not stopping.requested:
                outdated: Sequence[str] = await self._store.outdated(kind.plural, adapters_of(kind), limit=BATCH)
                for resource_id in outdated:
                    if stopping.requested:
                        break
                    await self._service.refresh(resource_id)
                    refreshed += 1
                if len(outdated) < BATCH:
                    break
            if refreshed:
                self._log.info("upkeep.aggregated", kind=kind.kind, resources=refreshed)

    async def retain(self, stopping: Stopping) -> None:
        """Forgets what is older than retention allows, every minute."""
        while not stopping.requested:
            try:
                while await self.expire() >= BATCH:
                    if stopping.requested:
                        return
            except Unavailable as error:
                self._log.warning("upkeep.failed", task="retention", error=error)
            if await stopping.interrupts(self._clock.sleep(EVERY)):
                return

    async def expire(self) -> int:
        """One step of forgetting; says how much was forgotten."""
        now = self._clock.now()
        forgotten = await self._store.expire(
            audit=now - self._retention.audit,
            discarded=now - self._retention.discarded,
            history=now - self._retention.history,
            answers=now - self._retention.answers,
            limit=BATCH,
        )
        if forgotten:
            self._log.info("upkeep.expired", entries=forgotten)
        return forgotten

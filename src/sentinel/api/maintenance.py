"""Background work of the fleet API: conditions that follow the kinds file, and which rows expire.

The loop works in bounded steps that may stop anywhere and be repeated: several servers on one database do the
same work twice at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sentinel.api.kinds import Kinds
from sentinel.api.service import FleetService
from sentinel.api.settings import FleetRetentionSettings
from sentinel.core.fleet.documents import KindRules
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetStore
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.retention import Retained

BATCH = 500
_RETRY = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1), jitter=0.0)


class Maintenance:
    """A loop that survives failures: a step that fails is logged and tried again later."""

    def __init__(
        self,
        *,
        service: FleetService,
        store: FleetStore,
        kinds: Kinds,
        clock: Clock,
        log: Log,
    ) -> None:
        self._service = service
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._log = log

    async def reaggregate_outdated(self, stopping: Stopping) -> None:
        """Brings the conditions of every resource up to the adapters that its kind requires, then waits."""
        failures = 0
        while not stopping.requested:
            try:
                for kind in self._kinds:
                    await self._catch_up(kind, stopping)
                break
            except Unavailable as error:
                self._log.warning("upkeep.failed", task="aggregate", error=error)
            except Exception as error:
                self._log.unexpected("upkeep.failed", task="aggregate", error=error)
            await stopping.interrupts(self._clock.sleep(_RETRY.delay(failures, 0.0)))
            failures += 1
        await stopping.wait()

    async def _catch_up(self, kind: KindRules, stopping: Stopping) -> None:
        refreshed = 0
        failed: set[str] = set()
        while not stopping.requested:
            outdated = await self._store.outdated(kind.plural, self._service.aggregated_for(kind), limit=BATCH)
            for resource_id in outdated:
                if resource_id in failed:
                    continue
                if stopping.requested:
                    break
                if await self._refresh(resource_id):
                    refreshed += 1
                else:
                    failed.add(resource_id)
            # What fails stays outdated; a batch of nothing else would come for ever.
            if len(outdated) < BATCH or failed.issuperset(outdated):
                break
        if refreshed or failed:
            self._log.info("upkeep.aggregated", kind=kind.kind, resources=refreshed, failed=len(failed))

    async def _refresh(self, resource_id: str) -> bool:
        """Whether it worked. One resource that cannot be read is no reason to serve none of the others."""
        try:
            await self._service.refresh(resource_id)
        except Unavailable:
            raise
        except Exception as error:
            self._log.unexpected("upkeep.failed", task="aggregate", resource_id=resource_id, error=error)
            return False
        return True


def retained(store: FleetStore, retention: FleetRetentionSettings) -> Sequence[Retained]:
    """The fleet's rows that are deleted when they are old."""
    return (
        Retained("discarded reports", retention.discarded, store.expire_discarded),
        Retained("generations", retention.history, store.expire_history),
    )

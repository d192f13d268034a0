"""Background work of the fleet API: reaggregation after a change of the kinds file, and expiry of old rows.

The loop works in bounded steps that may stop anywhere and be repeated. Several servers on one database do the same
work twice at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sentinel.api.kinds import Kinds
from sentinel.api.service import FleetService
from sentinel.api.settings import FleetRetentionSettings
from sentinel.core.fleet.documents import KindRules
from sentinel.ports.change_log import ChangeLog
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetStore
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.retention import RetentionRule

BATCH = 500
_RETRY = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1), jitter=0.0)


class Maintenance:
    """Reaggregates resources whose kind has changed. A failed step is logged and retried later."""

    def __init__(self, *, service: FleetService, store: FleetStore, kinds: Kinds, clock: Clock, log: Log) -> None:
        self._service = service
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._log = log

    async def reaggregate_outdated(self, stopping: Stopping) -> None:
        """Aggregate every resource for the adapters that its kind requires now. Then wait to be stopped."""
        failures = 0
        while not stopping.requested:
            try:
                for kind in self._kinds:
                    await self._reaggregate_kind(kind, stopping)
                break
            except Unavailable as error:
                self._log.warning("maintenance.failed", task="aggregate", error=error)
            except Exception as error:
                self._log.exception("maintenance.failed", task="aggregate", error=error)
            await stopping.interrupts(self._clock.sleep(_RETRY.delay(failures, 0.0)))
            failures += 1
        await stopping.wait()

    async def _reaggregate_kind(self, kind: KindRules, stopping: Stopping) -> None:
        succeeded = 0
        failed: set[str] = set()
        while not stopping.requested:
            outdated = await self._store.outdated(kind.plural, self._service.aggregation_key(kind), limit=BATCH)
            for resource_id in outdated:
                if resource_id in failed:
                    continue
                if stopping.requested:
                    break
                if await self._reaggregate(resource_id):
                    succeeded += 1
                else:
                    failed.add(resource_id)
            # Failed resources stay outdated. Stop when a batch has no others, or the loop would never end.
            if len(outdated) < BATCH or failed.issuperset(outdated):
                break
        if succeeded or failed:
            self._log.info("maintenance.aggregated", kind=kind.kind, resources=succeeded, failed=len(failed))

    async def _reaggregate(self, resource_id: str) -> bool:
        """Return whether it succeeded. One unreadable resource must not stop the others."""
        try:
            await self._service.reaggregate(resource_id)
        except Unavailable:
            raise
        except Exception as error:
            self._log.exception("maintenance.failed", task="aggregate", resource_id=resource_id, error=error)
            return False
        return True


def retention_rules(
    store: FleetStore, changes: ChangeLog, retention: FleetRetentionSettings
) -> Sequence[RetentionRule]:
    """Return how long rows of the fleet store are kept."""
    return (
        RetentionRule("changes", retention.changes, changes.expire),
        RetentionRule("discarded reports", retention.discarded, store.expire_discarded),
        RetentionRule("generations", retention.history, store.expire_history),
    )

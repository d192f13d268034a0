"""What users read of instances: those that are stored, with what agents have told this process since."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sentinel.core.hub.metrics_samples import Sample
from sentinel.hub.registry import Registry, with_reports
from sentinel.ports.hub_store import HubStore, InstancePage, InstanceQuery, InstanceRecord
from sentinel.web.errors import NotFound
from sentinel.web.problem import shown

MAX_SAMPLES = 10_000
"""Of one response: a day of samples every 30 seconds has 2,880."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class InstanceReads:
    """Reads instances and their metrics. Every method may raise `Unavailable`."""

    def __init__(self, *, store: HubStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def find(self, query: InstanceQuery) -> InstancePage:
        page = await self._store.instances(query)
        return InstancePage([self._current(each) for each in page.instances], page.total, page.is_last)

    async def get(self, instance_id: str) -> InstanceRecord:
        """Raises `NotFound`."""
        record = await self._store.instance(instance_id)
        if record is None:
            raise NotFound(f"there is no instance {shown(instance_id)}")
        return self._current(record)

    async def metrics(self, instance_id: str, *, since: datetime | None) -> Sequence[Sample]:
        """Return samples after a time, oldest first. Raises `NotFound`."""
        await self.get(instance_id)
        found = await self._store.metrics(instance_id, since=since or _BEGINNING, limit=MAX_SAMPLES)
        return [sample for sample in found if since is None or sample.time > since]

    def _current(self, record: InstanceRecord) -> InstanceRecord:
        known = self._registry.get(record.id)
        return record if known is None else with_reports(record, known.record)

"""Judges canaries by the metrics that their heartbeats have brought."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sentinel.core.hub import analysis
from sentinel.core.hub.analysis import Verdict
from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.rollout_state import Analyse, Rollout
from sentinel.hub import flusher
from sentinel.hub.registry import Registry
from sentinel.ports.hub_store import HubStore

_MAX_SAMPLES: Final = 10_000
"""For one instance. A day has 2,880."""
_CONCURRENT: Final = 32
_MISSED: Final = 3
"""How many heartbeats in a row a canary may miss."""
_MIN_GAP: Final = timedelta(seconds=30)
"""Shorter gaps say nothing: another hub writes samples every few seconds, and a busy host is late."""


class CanaryMetrics:
    """Reads samples from the store, and those that this process has not flushed yet."""

    def __init__(self, *, store: HubStore, registry: Registry, heartbeat_interval: timedelta) -> None:
        """`heartbeat_interval` is the one that agents are told."""
        self._store = store
        self._registry = registry
        self._max_gap = max(_MISSED * heartbeat_interval + flusher.INTERVAL, _MIN_GAP)

    async def judge(self, rollout: Rollout, command: Analyse) -> Verdict:
        """Judge the metrics of the window. Raises `Unavailable`."""
        criteria = rollout.canary.success_criteria
        # Samples of others are read only where something is compared with them.
        has_baseline = any(each.max_vs_baseline is not None for each in criteria)
        return analysis.judge(
            criteria,
            min_requests=rollout.canary.min_requests,
            canaries=await self._samples(command.canaries, command.since),
            baseline=await self._samples(command.baseline if has_baseline else (), command.since),
            since=command.since,
            until=command.until,
            max_gap=self._max_gap,
        )

    async def _samples(self, instance_ids: Sequence[str], since: datetime) -> Mapping[str, Sequence[Sample]]:
        found: dict[str, Sequence[Sample]] = {}
        for start in range(0, len(instance_ids), _CONCURRENT):
            chunk = instance_ids[start : start + _CONCURRENT]
            read = await asyncio.gather(*(self._samples_of(each, since) for each in chunk))
            found.update(zip(chunk, read, strict=True))
        return found

    async def _samples_of(self, instance_id: str, since: datetime) -> Sequence[Sample]:
        # Before the read: a sample that is flushed during it is in both, and counts once.
        known = self._registry.get(instance_id)
        unflushed = [] if known is None else [*known.samples]
        stored = await self._store.metrics(instance_id, since=since, limit=_MAX_SAMPLES)
        by_time = {sample.time: sample for sample in (*unflushed, *stored) if sample.time >= since}
        return [by_time[time] for time in sorted(by_time)]

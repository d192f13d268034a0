"""What the fleet API measures of the fleet itself. Requests are measured by `web`."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge

from sentinel.api.kinds import Kinds
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetStore
from sentinel.runtime.log import Log

PREFIX = "hyperfleet_api"
FRESH = timedelta(seconds=1)
"""How old the gauges may be that a scrape gets."""
PATIENCE = timedelta(seconds=6)
"""How long a scrape waits for the store: less than the ten seconds after which whoever scrapes gives up and has
nothing at all, and long enough for the store to find out that it cannot connect, and to say so in readiness."""


class FleetTelemetry:
    """Counts reports as they come, and reads the state of the fleet when somebody looks."""

    def __init__(
        self, *, kinds: Kinds, store: FleetStore, clock: Clock, registry: CollectorRegistry, log: Log
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._clock = clock
        self._log = log
        self._read: datetime | None = None
        self._reports = Counter(f"{PREFIX}_reports_total", "Reports that were stored.", registry=registry)
        self._discarded = Counter(
            f"{PREFIX}_reports_discarded_total", "Reports that were discarded.", ["reason"], registry=registry
        )
        for reason in DiscardReason:
            self._discarded.labels(reason.value)
        self._resources = Gauge(
            f"{PREFIX}_resources",
            "Resources that exist, those on their way out included.",
            ["kind", "ready"],
            registry=registry,
        )
        self._waiting = Gauge(
            f"{PREFIX}_longest_not_ready_seconds",
            "How long the longest-waiting resource has waited for an adapter; 0 where none waits.",
            ["kind", "adapter"],
            registry=registry,
        )

    def report_stored(self) -> None:
        """A report was stored."""
        self._reports.inc()

    def report_discarded(self, reason: DiscardReason) -> None:
        """A report was discarded."""
        self._discarded.labels(reason.value).inc()

    async def refresh_if_stale(self) -> None:
        """Reads the gauges anew where they are old enough; where the store does not answer, they stay as they are.

        However many scrape, and however often, it costs the store no more.
        """
        now = self._clock.now()
        if self._read is not None and abs(now - self._read) < FRESH:
            return
        self._read = now
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self.refresh()
        except (Unavailable, TimeoutError) as error:
            self._log.warning("metrics.stale", error=error)

    async def refresh(self) -> None:
        """Reads the gauges anew; cheap, whatever the size of the fleet."""
        populations = {(each.plural, each.is_ready): each.count for each in await self._store.populations()}
        waits = {(each.plural, each.adapter): each.since for each in await self._store.longest_waits()}
        now = self._clock.now()
        for kind in self._kinds:
            for is_ready in (True, False):
                count = populations.get((kind.plural, is_ready), 0)
                self._resources.labels(kind.kind, "true" if is_ready else "false").set(count)
            for adapter in kind.required_adapters:
                since = waits.get((kind.plural, adapter))
                seconds = 0.0 if since is None else max(0.0, (now - since).total_seconds())
                self._waiting.labels(kind.kind, adapter).set(seconds)

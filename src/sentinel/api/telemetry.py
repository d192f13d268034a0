"""Metrics of the fleet: reports, resources and streams. `web.metrics` has those of requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from sentinel.api.kinds import Kinds
from sentinel.api.resource_events import EventType
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.clock import Clock
from sentinel.ports.fleet_store import FleetStore
from sentinel.runtime.log import Log
from sentinel.runtime.probes.gauges import StoredGauges

PREFIX = "hyperfleet_api"


class FleetTelemetry:
    """Counts reports, and reads gauges from the store when metrics are scraped."""

    def __init__(
        self, *, kinds: Kinds, store: FleetStore, clock: Clock, registry: CollectorRegistry, log: Log
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._clock = clock
        self.refresh_if_stale = StoredGauges(self.refresh, clock=clock, log=log).refresh_if_stale
        self._reports = Counter(f"{PREFIX}_reports_total", "Reports that were stored.", registry=registry)
        self._discarded = Counter(
            f"{PREFIX}_reports_discarded_total", "Reports that were discarded.", ["reason"], registry=registry
        )
        for reason in DiscardReason:
            self._discarded.labels(reason.value)
        self._resources = Gauge(
            f"{PREFIX}_resources",
            "Resources that exist, including those being deleted.",
            ["kind", "ready"],
            registry=registry,
        )
        self._waiting = Gauge(
            f"{PREFIX}_longest_not_ready_seconds",
            "How long the longest-waiting resource has waited for an adapter; 0 if none waits.",
            ["kind", "adapter"],
            registry=registry,
        )

        self._streams = Gauge(f"{PREFIX}_streams", "Open streams of resources.", ["kind"], registry=registry)
        self._streams_cut_off = Counter(
            f"{PREFIX}_streams_cut_off_total",
            "Streams that were cut off because the client had read nothing for too long.",
            ["kind"],
            registry=registry,
        )
        for kind in kinds:
            self._streams.labels(kind.kind)
            self._streams_cut_off.labels(kind.kind)
        events = Counter(
            f"{PREFIX}_stream_events_total", "Events that were sent to streams.", ["type"], registry=registry
        )
        self._events = {event_type: events.labels(event_type.value) for event_type in EventType}

    def report_stored(self) -> None:
        self._reports.inc()

    def report_discarded(self, reason: DiscardReason) -> None:
        self._discarded.labels(reason.value).inc()

    def stream_opened(self, plural: str) -> None:
        self._streams.labels(self._kinds.of(plural).kind).inc()

    def stream_closed(self, plural: str) -> None:
        self._streams.labels(self._kinds.of(plural).kind).dec()

    def stream_cut_off(self, plural: str) -> None:
        self._streams_cut_off.labels(self._kinds.of(plural).kind).inc()

    def event_sent(self, event_type: EventType) -> None:
        self._events[event_type].inc()

    async def refresh(self) -> None:
        """Read the gauges from the store. The cost does not depend on the size of the fleet."""
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

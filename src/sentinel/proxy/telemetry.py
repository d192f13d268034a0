"""The metrics of the proxy, with the names that the real proxy has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from sentinel.version import __version__

_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
NO_ROUTE: Final = "none"
"""The label of requests that no route matches."""


class ProxyTelemetry:
    """Counts requests. Labels are closed sets: routes and upstreams of the configuration, known methods."""

    def __init__(self, *, open_connections: Callable[[], float] = lambda: 0) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "zentinel_requests_total", "Requests by status.", ("route", "method", "status"), registry=registry
        )
        self._durations = Histogram(
            "zentinel_request_duration_seconds",
            "Time from a request to the end of its response.",
            ("route", "method"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._failures = Counter(
            "zentinel_upstream_failures_total",
            "Attempts to reach an upstream that failed.",
            ("upstream", "route", "reason"),
            registry=registry,
        )
        active = Gauge("zentinel_active_requests", "Requests in progress.", registry=registry)
        active.set_function(lambda: self.active)
        connections = Gauge("zentinel_open_connections", "Open connections of clients.", registry=registry)
        connections.set_function(open_connections)
        Info("zentinel_build", "The version of the proxy.", registry=registry).info({"version": __version__})
        Gauge("zentinel_up", "Whether the proxy runs.", registry=registry).set(1)
        self.active = 0
        # A label lookup costs more than counting, so the children of each combination are kept.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def record(self, *, route: str, method: str, status: int, duration: timedelta) -> None:
        """Count a request that has ended."""
        key = (route, method if method in _METHODS else "other", status)
        children = self._children.get(key)
        if children is None:
            children = self._children[key] = (
                self._requests.labels(key[0], key[1], str(status)),
                self._durations.labels(key[0], key[1]),
            )
        requests, durations = children
        requests.inc()
        durations.observe(duration.total_seconds())

    def record_failure(self, *, upstream: str, route: str, reason: str) -> None:
        """Count a failed attempt."""
        self._failures.labels(upstream, route, reason).inc()

"""Metrics of a server's requests.

Every label has a bounded set of values: path templates instead of paths, known methods, and the statuses that
routes respond with. Requests that match no route are counted as `other`.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.web.middleware import RequestRecord

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """Counts requests; a `middleware.RequestObserver`."""

    def __init__(self, *, registry: CollectorRegistry, prefix: str) -> None:
        """`prefix` begins the metric names, such as `hyperfleet_api_`."""
        self._requests = Counter(
            f"{prefix}http_requests", "Finished requests.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            f"{prefix}http_request_duration_seconds",
            "From the arrival of the request headers to the end of the response.",
            ("route", "method"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(f"{prefix}http_requests_in_flight", "Requests in progress.", registry=registry)
        # Looking up a child by its labels costs more than counting. The label values are bounded, so this is
        # small.
        self._children: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]] = {}

    def began(self) -> None:
        self._in_flight.inc()

    def ended(self, record: RequestRecord) -> None:
        self._in_flight.dec()
        key = (record.route, record.method, record.status)
        children = self._children.get(key)
        if children is None:
            route, method, status = key
            children = self._children[key] = (
                self._requests.labels(route, method, str(status)).inc,
                self._seconds.labels(route, method).observe,
            )
        count, observe = children
        count()
        observe(record.duration.total_seconds())

"""What a server counts of its requests.

Every label is from a closed set: a route's template and never a path, known methods, and the statuses that
routes answer with. Whatever matches no route is `other`.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.web.middleware import RequestRecord

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """Counts exchanges; a `middleware.Observer`."""

    def __init__(self, *, registry: CollectorRegistry, prefix: str) -> None:
        """`prefix` begins the names, such as `hyperfleet_api_`."""
        self._requests = Counter(
            f"{prefix}http_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            f"{prefix}http_request_duration_seconds",
            "From the arrival of a request's headers to the end of its answer.",
            ("route", "method"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(f"{prefix}http_requests_in_flight", "Requests being answered.", registry=registry)
        # Finding a child by its labels costs more than counting; the sets are closed, so this stays small.
        self._children: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]] = {}

    def began(self) -> None:
        self._in_flight.inc()

    def ended(self, exchange: RequestRecord) -> None:
        self._in_flight.dec()
        key = (exchange.route, exchange.method, exchange.status)
        children = self._children.get(key)
        if children is None:
            route, method, status = key
            children = self._children[key] = (
                self._requests.labels(route, method, str(status)).inc,
                self._seconds.labels(route, method).observe,
            )
        count, observe = children
        count()
        observe(exchange.duration.total_seconds())

"""What a proxy's metrics say in the words of the protocol.

Counters are reported as the proxy shows them. They begin at zero when it restarts, and the hub, which has all
samples, counts across that. Latencies are those of the requests since the scrape before; after a restart, of all
requests since then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from sentinel.core.agent import prometheus_text
from sentinel.core.hub.metrics_samples import Metrics

BUILD_INFO: Final = "zentinel_build_info"
"""The metric whose label `version` is the version of the proxy."""

_MEDIAN: Final = 0.5
_PERCENTILE_99: Final = 0.99
_MILLISECONDS: Final = 1000


class MetricNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the proxy's metrics. None: it has no such metric."""

    requests_total: str
    requests_failed: str | None
    """None: count the requests in `requests_total` whose `status` is 5xx."""
    latency_p50_ms: str
    latency_p99_ms: str
    """A histogram in seconds, despite the name in the protocol."""
    active_connections: str
    bytes_sent: str | None
    bytes_received: str | None


Buckets: TypeAlias = tuple[tuple[float, float], ...]
"""A histogram: upper bounds, ascending, and how many observations were at most that."""


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """What one scrape has found. What is missing is zero."""

    requests_total: int = 0
    requests_failed: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    active_connections: int = 0
    median_of: Buckets = ()
    percentile_99_of: Buckets = ()
    version: str = ""
    """The version of the proxy; empty if it does not say."""


def read(text: str, names: MetricNames) -> Scrape:
    """Read a page of metrics."""
    median, percentile_99 = f"{names.latency_p50_ms}_bucket", f"{names.latency_p99_ms}_bucket"
    wanted = {
        names.requests_total,
        names.requests_failed or names.requests_total,
        names.active_connections,
        names.bytes_sent or names.requests_total,
        names.bytes_received or names.requests_total,
        median,
        percentile_99,
        BUILD_INFO,
    }
    found: dict[str, list[prometheus_text.Series]] = {name: [] for name in wanted}
    for series in prometheus_text.parse(text, wanted):
        found[series.name].append(series)
    requests = found[names.requests_total]
    failed = (
        [series for series in requests if _is_failure(series.labels.get("status", ""))]
        if names.requests_failed is None
        else found[names.requests_failed]
    )
    return Scrape(
        requests_total=_total(requests),
        requests_failed=_total(failed),
        bytes_sent=0 if names.bytes_sent is None else _total(found[names.bytes_sent]),
        bytes_received=0 if names.bytes_received is None else _total(found[names.bytes_received]),
        active_connections=_total(found[names.active_connections]),
        median_of=_buckets(found[median]),
        percentile_99_of=_buckets(found[percentile_99]),
        version=next((series.labels.get("version", "") for series in found[BUILD_INFO]), ""),
    )


def measure(before: Scrape | None, now: Scrape) -> Metrics:
    """Return what is reported after the scrape `now`. `before` is the one before it, if there was one."""
    earlier = before or Scrape()
    return Metrics(
        requests_total=now.requests_total,
        requests_failed=now.requests_failed,
        latency_p50_ms=_quantile(_MEDIAN, _since(earlier.median_of, now.median_of)) * _MILLISECONDS,
        latency_p99_ms=_quantile(_PERCENTILE_99, _since(earlier.percentile_99_of, now.percentile_99_of))
        * _MILLISECONDS,
        bytes_sent=now.bytes_sent,
        bytes_received=now.bytes_received,
    )


def _is_failure(status: str) -> bool:
    return len(status) == len("500") and status.startswith("5")


def _total(series: Iterable[prometheus_text.Series]) -> int:
    return int(math.fsum(each.value for each in series if _is_countable(each.value)))


def _is_countable(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _buckets(series: Iterable[prometheus_text.Series]) -> Buckets:
    """Add up the buckets of all series of a histogram."""
    counts: dict[float, float] = {}
    for each in series:
        bound = _bound(each.labels)
        if bound is not None and _is_countable(each.value):
            counts[bound] = counts.get(bound, 0.0) + each.value
    return tuple(sorted(counts.items()))


def _bound(labels: Mapping[str, str]) -> float | None:
    try:
        bound = float(labels.get("le", ""))
    except ValueError:
        return None
    # Latencies are not negative, so a bucket up to zero is left out.
    return bound if bound > 0 else None


def _since(before: Buckets, now: Buckets) -> Sequence[tuple[float, float]]:
    """Return what was observed after `before`; all of it if the proxy has restarted or has other buckets."""
    counted = dict(before)
    if any(bound not in counted or count < counted[bound] for bound, count in now):
        return now
    return [(bound, count - counted[bound]) for bound, count in now]


def _quantile(fraction: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Estimate a quantile as Prometheus does: evenly spread within a bucket. Zero if nothing was observed."""
    if not buckets or buckets[-1][1] <= 0:
        return 0.0
    rank = fraction * buckets[-1][1]
    steps = pairwise(((0.0, 0.0), *buckets))
    # The last bucket has all, so there is always one.
    (lower, below), (upper, count) = next(step for step in steps if step[1][1] >= rank)
    if math.isinf(upper):
        return lower  # the last bucket has no upper bound
    return lower + (upper - lower) * (rank - below) / (count - below)

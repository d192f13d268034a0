"""What a proxy's metrics say in the words of the protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.agent.proxy_metrics import MetricNames, Scrape, measure, read
from sentinel.core.hub.metrics_samples import Metrics

NAMES = MetricNames(
    requests_total="requests_total",
    requests_failed=None,
    latency_p50_ms="duration_seconds",
    latency_p99_ms="duration_seconds",
    active_connections="connections",
    bytes_sent=None,
    bytes_received=None,
)
PAGE = """
# HELP requests_total Requests.
requests_total{route="a",status="200"} 90
requests_total{route="b",status="200"} 5
requests_total{route="b",status="503"} 4
requests_total{route="b",status="500"} 1
requests_total{route="b",status="5"} 0
duration_seconds_bucket{route="a",le="0.1"} 50
duration_seconds_bucket{route="a",le="0.2"} 90
duration_seconds_bucket{route="a",le="+Inf"} 90
duration_seconds_bucket{route="b",le="0.1"} 0
duration_seconds_bucket{route="b",le="0.2"} 10
duration_seconds_bucket{route="b",le="+Inf"} 10
duration_seconds_bucket{route="b",le="-1"} 10
duration_seconds_bucket{route="b",le="soon"} 10
duration_seconds_bucket{route="b"} 10
connections 7
sent_total 1e9
failures_total 12
zentinel_build_info{version="0.6.20"} 1
"""


def test_a_page_is_read_by_the_names_of_its_metrics() -> None:
    assert read(PAGE, NAMES) == Scrape(
        requests_total=100,
        requests_failed=5,
        active_connections=7,
        median_of=((0.1, 50.0), (0.2, 100.0), (math.inf, 100.0)),
        percentile_99_of=((0.1, 50.0), (0.2, 100.0), (math.inf, 100.0)),
        version="0.6.20",
    )


def test_other_metrics_can_be_named() -> None:
    names = msgspec.structs.replace(
        NAMES, requests_failed="failures_total", bytes_sent="sent_total", bytes_received="received_total"
    )

    scrape = read(PAGE, names)

    assert (scrape.requests_failed, scrape.bytes_sent, scrape.bytes_received) == (12, 10**9, 0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_a_value_that_counts_nothing_is_ignored(value: str) -> None:
    page = f'requests_total{{route="a"}} {value}\nrequests_total{{route="b"}} 2\n'
    page += f'duration_seconds_bucket{{le="1"}} {value}\n'

    assert read(page, NAMES) == Scrape(requests_total=2)


def test_a_page_of_something_else_reports_zeros() -> None:
    assert measure(None, read("<html>hello</html>", NAMES)) == Metrics()


def scrape(*counts: float, bounds: Sequence[float] = (0.1, 0.2, 0.4, math.inf), requests: int = 0) -> Scrape:
    buckets = tuple(zip(bounds, counts, strict=True))
    return Scrape(requests_total=requests, median_of=buckets, percentile_99_of=buckets)


def latencies(before: Scrape | None, now: Scrape) -> tuple[float, float]:
    metrics = measure(before, now)
    return round(metrics.latency_p50_ms, 6), round(metrics.latency_p99_ms, 6)


def test_latencies_are_those_since_the_scrape_before() -> None:
    before = scrape(1000, 1000, 1000, 1000)

    assert latencies(before, scrape(1000, 1100, 1100, 1100)) == (150.0, 199.0)


def test_the_first_scrape_reports_all_requests() -> None:
    assert latencies(None, scrape(0, 100, 100, 100)) == (150.0, 199.0)


def test_without_requests_there_is_no_latency() -> None:
    assert latencies(scrape(5, 5, 5, 5), scrape(5, 5, 5, 5)) == (0.0, 0.0)
    assert latencies(None, scrape(0, 0, 0, 0)) == (0.0, 0.0)


def test_after_a_restart_of_the_proxy_all_its_requests_count() -> None:
    before = scrape(1000, 2000, 2000, 2000, requests=2000)

    metrics = measure(before, scrape(0, 0, 100, 100, requests=100))

    assert metrics.requests_total == 100
    assert metrics.latency_p50_ms == pytest.approx(300)


def test_with_other_buckets_all_requests_count() -> None:
    now = scrape(10, 10, bounds=(0.3, math.inf))

    assert latencies(scrape(5, 5, 5, 5), now) == (150.0, 297.0)


def test_above_the_largest_bound_that_bound_is_reported() -> None:
    assert latencies(None, scrape(0, 0, 0, 10)) == (400.0, 400.0)
    assert latencies(None, scrape(10, bounds=(math.inf,))) == (0.0, 0.0)


Counts = st.lists(st.integers(0, 10**6), min_size=4, max_size=4)


@given(Counts, Counts)
def test_latencies_are_plausible_whatever_a_proxy_shows(before: list[int], now: list[int]) -> None:
    metrics = measure(scrape(*before), scrape(*now))

    assert metrics.is_plausible
    assert metrics.latency_p50_ms <= 400
    assert metrics.latency_p99_ms <= 400


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=60))
def test_a_quantile_is_in_the_bucket_of_the_true_one(durations: list[float]) -> None:
    bounds = (0.1, 0.2, 0.4, 3.0)
    counts = [float(sum(duration <= bound for duration in durations)) for bound in bounds]

    metrics = measure(None, scrape(*counts, bounds=bounds))

    for fraction, found in ((0.5, metrics.latency_p50_ms), (0.99, metrics.latency_p99_ms)):
        true = sorted(durations)[math.ceil(fraction * len(durations)) - 1]
        upper = next(bound for bound in bounds if true <= bound)
        lower = max((bound for bound in bounds if bound < upper), default=0.0)
        assert lower * 1000 <= found * (1 + 1e-9)
        assert found <= upper * 1000 * (1 + 1e-9)

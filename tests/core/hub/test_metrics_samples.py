from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.hub import metrics_samples
from sentinel.core.hub.metrics_samples import Increase, Metrics, Sample

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def sample(seconds: int, requests: int = 0, *, latency: float = 0.0) -> Sample:
    return Sample(START + seconds * SECOND, Metrics(requests_total=requests, latency_p99_ms=latency))


def admitted(*samples: Sample, latest: datetime | None = None, now: datetime = START) -> Sequence[Sample]:
    return metrics_samples.admit_buffered(samples, latest=latest, now=now, retention=DAY)


@st.composite
def histories(draw: st.DrawFn) -> list[Sample]:
    """Draw samples about every ten seconds, of a proxy that restarts now and then."""
    time, counters = START, [0, 0, 0, 0]
    drawn = []
    for _ in range(draw(st.integers(0, 40))):
        time += draw(st.integers(1, 30)) * SECOND
        if draw(st.integers(0, 5)) == 0:
            counters = [0, 0, 0, 0]
        counters = [each + draw(st.integers(0, 9)) for each in counters]
        total, failed, sent, received = counters
        latency = float(draw(st.integers(0, 5)))
        drawn.append(
            Sample(
                time,
                Metrics(
                    requests_total=total,
                    requests_failed=failed,
                    bytes_sent=sent,
                    bytes_received=received,
                    latency_p99_ms=latency,
                ),
            )
        )
    return drawn


class TestBuffered:
    def test_samples_are_stored_in_the_order_of_their_times(self) -> None:
        late, early = sample(-10), sample(-20)

        assert admitted(late, early) == [early, late]

    def test_the_same_time_is_stored_once(self) -> None:
        assert admitted(sample(-10, 1), sample(-10, 2)) == [sample(-10, 2)]

    def test_what_is_not_between_the_last_sample_and_now_is_dropped(self) -> None:
        latest = START - MINUTE

        stored = admitted(sample(-61), sample(-60), sample(-59), sample(-1), sample(0), sample(1), latest=latest)

        assert stored == [sample(-59), sample(-1)]

    def test_what_would_be_deleted_at_once_is_dropped(self) -> None:
        kept, expired = sample(-86_399), sample(-86_400)

        assert admitted(expired, kept) == [kept]
        assert admitted(expired, kept, latest=START - 2 * DAY) == [kept]

    @pytest.mark.parametrize(
        "metrics",
        [
            Metrics(requests_total=-1),
            Metrics(requests_failed=-1),
            Metrics(bytes_sent=-1),
            Metrics(bytes_received=-1),
            Metrics(latency_p50_ms=-0.1),
            Metrics(latency_p99_ms=float("nan")),
            Metrics(latency_p50_ms=float("inf")),
        ],
    )
    def test_what_cannot_be_is_dropped(self, metrics: Metrics) -> None:
        assert not metrics.is_plausible
        assert admitted(Sample(START - SECOND, metrics)) == []

    def test_zeros_are_plausible(self) -> None:
        assert Metrics().is_plausible


class TestIncrease:
    def test_it_is_the_difference_of_the_last_and_the_first(self) -> None:
        first = Metrics(requests_total=10, requests_failed=1, bytes_sent=100, bytes_received=50)
        last = Metrics(requests_total=30, requests_failed=2, bytes_sent=400, bytes_received=51)

        grown = metrics_samples.increase([Sample(START, first), Sample(START + SECOND, last)])

        assert grown == Increase(requests_total=20, requests_failed=1, bytes_sent=300, bytes_received=1)

    def test_a_counter_that_is_lower_began_again_at_zero(self) -> None:
        grown = metrics_samples.increase([sample(0, 90), sample(1, 100), sample(2, 5), sample(3, 7)])

        assert grown.requests_total == 17

    def test_where_one_began_again_all_did(self) -> None:
        before = Metrics(requests_total=1000, requests_failed=20, bytes_sent=500, bytes_received=7)
        after = Metrics(requests_total=300, requests_failed=30, bytes_sent=900, bytes_received=7)

        grown = metrics_samples.increase([Sample(START, before), Sample(START + SECOND, after)])

        assert grown == Increase(requests_total=300, requests_failed=30, bytes_sent=900, bytes_received=7)

    @pytest.mark.parametrize("samples", [[], [sample(0, 100)]])
    def test_of_one_sample_nothing_is_known(self, samples: list[Sample]) -> None:
        assert metrics_samples.increase(samples) == Increase()


class TestThinOut:
    def test_the_last_of_each_interval_is_kept(self) -> None:
        samples = [sample(seconds, seconds) for seconds in range(0, 180, 30)]

        kept = metrics_samples.thin_out(samples, MINUTE)

        assert kept == [sample(30, 30), sample(90, 90), sample(150, 150)]

    def test_the_worst_latency_of_an_interval_is_kept(self) -> None:
        samples = [sample(0, latency=1), sample(10, latency=900), sample(20, latency=1), sample(30, latency=1)]

        kept = metrics_samples.thin_out(samples, MINUTE)

        assert kept == [samples[1], samples[3]]

    def test_both_sides_of_a_reset_are_kept(self) -> None:
        samples = [sample(0, 50, latency=9), sample(10, 100), sample(20, 3), sample(30, 4), sample(40, 150)]

        kept = metrics_samples.thin_out(samples, MINUTE)

        assert kept == [samples[0], samples[1], samples[2], samples[4]]

    @hypothesis.given(histories(), st.integers(10, 120))
    def test_increases_are_as_exact_as_before(self, samples: list[Sample], seconds: int) -> None:
        kept = metrics_samples.thin_out(samples, seconds * SECOND)

        for first, last in pairwise(kept):
            between = [each for each in samples if first.time <= each.time <= last.time]
            assert metrics_samples.increase([first, last]) == metrics_samples.increase(between)

    @hypothesis.given(histories(), st.integers(10, 120))
    def test_doing_it_again_changes_nothing(self, samples: list[Sample], seconds: int) -> None:
        kept = metrics_samples.thin_out(samples, seconds * SECOND)

        assert metrics_samples.thin_out(kept, seconds * SECOND) == kept

    @hypothesis.given(histories(), st.integers(10, 120))
    def test_few_are_left(self, samples: list[Sample], seconds: int) -> None:
        kept = metrics_samples.thin_out(samples, seconds * SECOND)

        intervals = {int(each.time.timestamp()) // seconds for each in samples}
        resets = sum(
            any(new < old for old, new in zip(a.metrics.counters, b.metrics.counters, strict=True))
            for a, b in pairwise(samples)
        )
        assert len(kept) <= 2 * len(intervals) + 2 * resets
        assert set(kept) <= set(samples)
        assert max((each.metrics.latency_p99_ms for each in kept), default=0) == max(
            (each.metrics.latency_p99_ms for each in samples), default=0
        )

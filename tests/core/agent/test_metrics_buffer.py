"""The buffer of metrics that could not be delivered yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.agent.metrics_buffer import MAX_AGE, add, without
from sentinel.core.hub.metrics_samples import Metrics, Sample, increase

MOMENT = datetime(2025, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def sample(seconds: float, requests: int = 0, latency: float = 0.0) -> Sample:
    return Sample(MOMENT + seconds * SECOND, Metrics(requests_total=requests, latency_p99_ms=latency))


def added(*samples: Sample, max_samples: int = 100) -> Sequence[Sample]:
    kept: Sequence[Sample] = ()
    for each in samples:
        kept = add(kept, each, max_samples=max_samples)
    return kept


def test_samples_of_a_day_are_kept() -> None:
    first, later, last = sample(0), sample(10), sample(MAX_AGE / SECOND + 5)

    assert [*added(first, later, last)] == [later, last]


def test_of_one_second_only_the_last_sample_is_kept() -> None:
    assert [*added(sample(0), sample(1.2, 1), sample(1.9, 2))] == [sample(0), sample(1.9, 2)]


def test_samples_later_than_a_clock_that_was_set_back_are_dropped() -> None:
    assert [*added(sample(0), sample(3600), sample(30))] == [sample(0), sample(30)]


def test_too_many_samples_are_thinned_out_with_their_peaks() -> None:
    samples = [sample(second, second, latency=900.0 if second == 7 else 1.0) for second in range(300)]

    kept = added(*samples)

    assert len(kept) <= 100
    assert samples[7] in kept
    assert kept[-1] == samples[-1]
    assert increase(kept).requests_total >= 299 - 60  # the first minute has its last sample


def test_a_proxy_that_always_restarts_does_not_exceed_the_bound() -> None:
    kept = added(*(sample(second, 1000 - second) for second in range(200)))

    assert [*kept] == [sample(second, 1000 - second) for second in range(100, 200)]


def test_only_what_was_delivered_is_dropped() -> None:
    samples = added(sample(0), sample(1), sample(2))

    assert [*without(samples, samples[:2])] == [sample(2)]
    assert [*without(samples, ())] == [*samples]


@given(st.lists(st.tuples(st.floats(-100, 200_000), st.integers(0, 100)), max_size=60), st.integers(1, 12))
def test_the_buffer_is_bounded_ascending_and_recent(taken: list[tuple[float, int]], max_samples: int) -> None:
    samples = [sample(seconds, requests) for seconds, requests in taken]

    kept = added(*samples, max_samples=max_samples)

    assert len(kept) <= max_samples
    assert [each.time for each in kept] == sorted(
        {each.time.replace(microsecond=0): each.time for each in kept}.values()
    )
    assert set(kept) <= set(samples)
    if samples:
        assert kept[-1] == samples[-1]
        assert all(kept[-1].time - each.time < MAX_AGE for each in kept)

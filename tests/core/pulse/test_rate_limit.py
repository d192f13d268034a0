"""The rate limit: which resources go first, and how many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import Decision, Reason
from sentinel.core.pulse.rate_limit import MostUrgent, TokenBucket

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def take_all(bucket: TokenBucket, now: datetime) -> int:
    """Spend all available tokens."""
    count = bucket.available(now)
    bucket.spend(count)
    return count


def due(reason: Reason, since: datetime) -> Decision:
    return Decision(True, reason, NOW, since, 10 * SECOND)


def test_changed_specs_go_first_then_the_longest_waiting() -> None:
    most_urgent = MostUrgent[str](3)
    most_urgent.offer("young", due(Reason.EXPIRED_READY, NOW - SECOND))
    most_urgent.offer("old", due(Reason.EXPIRED_NOT_READY, NOW - 60 * SECOND))
    most_urgent.offer("older", due(Reason.EXPIRED_READY, NOW - 90 * SECOND))
    most_urgent.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert most_urgent.chosen() == ["changed", "older", "old"]
    assert most_urgent.left_out == 1


def test_a_requested_pulse_is_as_urgent_as_a_changed_spec() -> None:
    most_urgent = MostUrgent[str](2)
    most_urgent.offer("old", due(Reason.EXPIRED_READY, NOW - 60 * SECOND))
    most_urgent.offer("changed", due(Reason.GENERATION_CHANGED, NOW))
    most_urgent.offer("requested", due(Reason.PULSE_REQUESTED, NOW))

    assert most_urgent.chosen() == ["changed", "requested"]


def test_size_zero_keeps_no_candidate() -> None:
    most_urgent = MostUrgent[str](0)
    most_urgent.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert most_urgent.chosen() == []
    assert most_urgent.left_out == 1


def test_a_bucket_spreads_events_over_cycles() -> None:
    bucket = TokenBucket(per_second=10, poll_interval=5 * SECOND)

    assert [take_all(bucket, NOW + n * 5 * SECOND) for n in range(3)] == [50, 50, 50]


def test_a_rate_below_one_event_per_poll_still_sends_events() -> None:
    bucket = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    assert [take_all(bucket, NOW + n * 5 * SECOND) for n in range(5)] == [1, 0, 1, 0, 1]


@given(st.floats(0.01, 1000), st.lists(st.integers(0, 60), min_size=1, max_size=50))
def test_a_bucket_exceeds_its_rate_by_at_most_one_cycle(rate: float, gaps: list[int]) -> None:
    bucket = TokenBucket(per_second=rate, poll_interval=5 * SECOND)
    now, granted = NOW, take_all(bucket, NOW)

    for gap in gaps:
        now += gap * SECOND
        granted += take_all(bucket, now)

    assert granted <= rate * sum(gaps) + max(1.0, rate * 5) + 1e-6


def test_unspent_tokens_are_available_in_the_next_cycle() -> None:
    bucket = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    available = [bucket.available(NOW + n * 5 * SECOND) for n in range(4)]

    assert available == [1, 1, 1, 1]


def test_slices_last_a_tenth_of_a_second() -> None:
    fast, slow = (TokenBucket(per_second=rate, poll_interval=5 * SECOND) for rate in (200.0, 2.0))

    assert (fast.slice, fast.pause) == (20, SECOND / 10)
    assert (slow.slice, slow.pause) == (1, SECOND / 2)

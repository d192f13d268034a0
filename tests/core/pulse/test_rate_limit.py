"""The ceiling: who goes first, and how many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import Decision, Reason
from sentinel.core.pulse.rate_limit import MostUrgent, TokenBucket

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def taken(allowance: TokenBucket, now: datetime) -> int:
    """Spends all there is."""
    count = allowance.available(now)
    allowance.spend(count)
    return count


def due(reason: Reason, since: datetime) -> Decision:
    return Decision(True, reason, NOW, since, 10 * SECOND)


def test_changed_specs_go_first_then_the_longest_waiting() -> None:
    shortlist = MostUrgent[str](3)
    shortlist.offer("young", due(Reason.EXPIRED_READY, NOW - SECOND))
    shortlist.offer("old", due(Reason.EXPIRED_NOT_READY, NOW - 60 * SECOND))
    shortlist.offer("older", due(Reason.EXPIRED_READY, NOW - 90 * SECOND))
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert shortlist.chosen() == ["changed", "older", "old"]
    assert shortlist.left_out == 1


def test_a_requested_pulse_is_as_urgent_as_a_changed_spec() -> None:
    shortlist = MostUrgent[str](2)
    shortlist.offer("old", due(Reason.EXPIRED_READY, NOW - 60 * SECOND))
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))
    shortlist.offer("requested", due(Reason.PULSE_REQUESTED, NOW))

    assert shortlist.chosen() == ["changed", "requested"]


def test_size_zero_keeps_no_candidate() -> None:
    shortlist = MostUrgent[str](0)
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert shortlist.chosen() == []
    assert shortlist.left_out == 1


def test_a_bucket_spreads_events_over_cycles() -> None:
    allowance = TokenBucket(per_second=10, poll_interval=5 * SECOND)

    assert [taken(allowance, NOW + n * 5 * SECOND) for n in range(3)] == [50, 50, 50]


def test_a_rate_below_one_event_per_poll_still_sends_events() -> None:
    allowance = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    assert [taken(allowance, NOW + n * 5 * SECOND) for n in range(5)] == [1, 0, 1, 0, 1]


@given(st.floats(0.01, 1000), st.lists(st.integers(0, 60), min_size=1, max_size=50))
def test_a_bucket_exceeds_its_rate_by_at_most_one_cycle(rate: float, gaps: list[int]) -> None:
    allowance = TokenBucket(per_second=rate, poll_interval=5 * SECOND)
    now, granted = NOW, taken(allowance, NOW)

    for gap in gaps:
        now += gap * SECOND
        granted += taken(allowance, now)

    assert granted <= rate * sum(gaps) + max(1.0, rate * 5) + 1e-6


def test_unspent_tokens_are_available_in_the_next_cycle() -> None:
    allowance = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    available = [allowance.available(NOW + n * 5 * SECOND) for n in range(4)]

    assert available == [1, 1, 1, 1]


def test_slices_last_a_tenth_of_a_second() -> None:
    fast, slow = (TokenBucket(per_second=rate, poll_interval=5 * SECOND) for rate in (200.0, 2.0))

    assert (fast.slice, fast.pause) == (20, SECOND / 10)
    assert (slow.slice, slow.pause) == (1, SECOND / 2)

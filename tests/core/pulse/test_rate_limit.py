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


def test_a_shortlist_takes_generation_changes_first_then_those_that_waited_longest() -> None:
    shortlist = MostUrgent[str](3)
    shortlist.offer("young", due(Reason.EXPIRED_READY, NOW - SECOND))
    shortlist.offer("old", due(Reason.EXPIRED_NOT_READY, NOW - 60 * SECOND))
    shortlist.offer("older", due(Reason.EXPIRED_READY, NOW - 90 * SECOND))
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert shortlist.chosen() == ["changed", "older", "old"]
    assert shortlist.left_out == 1


def test_a_requested_pulse_goes_with_the_changed_specs() -> None:
    shortlist = MostUrgent[str](2)
    shortlist.offer("old", due(Reason.EXPIRED_READY, NOW - 60 * SECOND))
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))
    shortlist.offer("requested", due(Reason.PULSE_REQUESTED, NOW))

    assert shortlist.chosen() == ["changed", "requested"]


def test_an_empty_shortlist_leaves_everyone_out() -> None:
    shortlist = MostUrgent[str](0)
    shortlist.offer("changed", due(Reason.GENERATION_CHANGED, NOW))

    assert shortlist.chosen() == []
    assert shortlist.left_out == 1


def test_an_allowance_spreads_events_over_cycles() -> None:
    allowance = TokenBucket(per_second=10, poll_interval=5 * SECOND)

    assert [taken(allowance, NOW + n * 5 * SECOND) for n in range(3)] == [50, 50, 50]


def test_an_allowance_below_one_event_a_poll_still_lets_events_through() -> None:
    allowance = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    assert [taken(allowance, NOW + n * 5 * SECOND) for n in range(5)] == [1, 0, 1, 0, 1]


@given(st.floats(0.01, 1000), st.lists(st.integers(0, 60), min_size=1, max_size=50))
def test_an_allowance_never_exceeds_its_rate_by_more_than_one_cycle(rate: float, gaps: list[int]) -> None:
    allowance = TokenBucket(per_second=rate, poll_interval=5 * SECOND)
    now, granted = NOW, taken(allowance, NOW)

    for gap in gaps:
        now += gap * SECOND
        granted += taken(allowance, now)

    assert granted <= rate * sum(gaps) + max(1.0, rate * 5) + 1e-6


def test_what_an_idle_cycle_did_not_spend_is_there_for_the_next() -> None:
    allowance = TokenBucket(per_second=0.1, poll_interval=5 * SECOND)

    available = [allowance.available(NOW + n * 5 * SECOND) for n in range(4)]

    assert available == [1, 1, 1, 1]


def test_events_leave_in_slices_of_a_tenth_of_a_second() -> None:
    fast, slow = (TokenBucket(per_second=rate, poll_interval=5 * SECOND) for rate in (200.0, 2.0))

    assert (fast.slice, fast.pause) == (20, SECOND / 10)
    assert (slow.slice, slow.pause) == (1, SECOND / 2)

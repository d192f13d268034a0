"""Limiting failed sign-ins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core import login_throttle
from sentinel.core.login_throttle import MAX_FAILURES, WINDOW

START = datetime(2026, 1, 1, tzinfo=UTC)
ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
FIVE = tuple(START + number * SECOND for number in range(MAX_FAILURES))
HOUR = timedelta(hours=1)


def test_the_sixth_attempt_within_a_minute_has_to_wait() -> None:
    now = START + 4 * SECOND
    failures = FIVE[:4]

    assert login_throttle.wait(failures, now) == ZERO
    assert login_throttle.wait(login_throttle.with_failure(failures, now), now + SECOND) == 55 * SECOND


def test_an_attempt_is_free_a_minute_after_the_oldest_failure() -> None:
    assert login_throttle.wait(FIVE, START + WINDOW - SECOND) == SECOND
    assert login_throttle.wait(FIVE, START + WINDOW) == ZERO


def test_without_failures_there_is_nothing_to_wait_for() -> None:
    assert login_throttle.wait((), START) == ZERO
    assert login_throttle.with_failure((), START) == (START,)


def test_only_failures_that_count_are_kept() -> None:
    now = START + WINDOW + 2 * SECOND

    assert login_throttle.with_failure(FIVE, now) == (*FIVE[3:], now)


def test_never_more_than_five_failures_are_kept_oldest_first() -> None:
    shuffled = (*FIVE[3:], *FIVE[:3])

    assert login_throttle.with_failure(shuffled, START + 9 * SECOND) == (*FIVE[1:], START + 9 * SECOND)


@pytest.mark.parametrize(("ahead", "expected"), [(10 * SECOND, WINDOW), (59 * SECOND, WINDOW), (HOUR, ZERO)])
def test_no_clock_of_another_server_locks_a_user_out(ahead: timedelta, expected: timedelta) -> None:
    failures = [time + ahead for time in FIVE[:1] * MAX_FAILURES]

    assert login_throttle.wait(failures, START) == expected
    assert login_throttle.wait(failures, START + 2 * WINDOW) == ZERO


def test_failures_from_far_ahead_push_out_no_others() -> None:
    failures = (*FIVE[:2], START + HOUR)

    assert login_throttle.with_failure(failures, FIVE[2]) == FIVE[:3]


@given(st.lists(st.integers(0, 90), max_size=40))
def test_no_minute_has_more_than_five_admitted_failures(delays: list[int]) -> None:
    now, failures, admitted = START, tuple[datetime, ...](), list[datetime]()
    for delay in delays:
        now += delay * SECOND
        if login_throttle.wait(failures, now) == ZERO:
            failures = login_throttle.with_failure(failures, now)
            admitted.append(now)

    for time in admitted:
        assert len([other for other in admitted if ZERO <= other - time < WINDOW]) <= MAX_FAILURES


@given(st.lists(st.integers(0, 90), max_size=40))
def test_an_attempt_is_refused_only_after_five_in_the_last_minute(delays: list[int]) -> None:
    now, failures, admitted = START, tuple[datetime, ...](), list[datetime]()
    for delay in delays:
        now += delay * SECOND
        wait = login_throttle.wait(failures, now)
        if wait == ZERO:
            failures = login_throttle.with_failure(failures, now)
            admitted.append(now)
        else:
            recent = [time for time in admitted if now - time < WINDOW]
            assert len(recent) == MAX_FAILURES
            assert wait == recent[0] + WINDOW - now

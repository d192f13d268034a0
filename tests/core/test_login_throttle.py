"""Limiting failed sign-ins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.login_throttle import MAX_FAILURES, WINDOW, LoginThrottle

START = datetime(2026, 1, 1, tzinfo=UTC)
ZERO = timedelta(0)
SECOND = timedelta(seconds=1)


def failed(throttle: LoginThrottle, *keys: str, count: int = MAX_FAILURES) -> None:
    for number in range(count):
        throttle.fail(keys, START + number * SECOND)


def test_the_sixth_attempt_within_a_minute_has_to_wait() -> None:
    throttle = LoginThrottle()
    failed(throttle, "ann", count=4)
    assert throttle.wait(["ann"], START + 4 * SECOND) == ZERO

    throttle.fail(["ann"], START + 4 * SECOND)

    assert throttle.wait(["ann"], START + 5 * SECOND) == 55 * SECOND


def test_an_attempt_is_free_a_minute_after_the_oldest_failure() -> None:
    throttle = LoginThrottle()
    failed(throttle, "ann")

    assert throttle.wait(["ann"], START + WINDOW - SECOND) == SECOND
    assert throttle.wait(["ann"], START + WINDOW) == ZERO


def test_each_key_counts_by_itself_and_the_longest_wait_counts() -> None:
    throttle = LoginThrottle()
    failed(throttle, "name:ann", "address:1")
    throttle.fail(["address:2"], START)

    later = START + 10 * SECOND
    assert throttle.wait(["name:ann", "address:2"], later) == 50 * SECOND
    assert throttle.wait(["name:ben", "address:1"], later) == 50 * SECOND
    assert throttle.wait(["name:ben", "address:2"], later) == ZERO
    assert throttle.wait([], later) == ZERO


def test_an_attempt_that_was_right_is_not_counted() -> None:
    throttle = LoginThrottle()
    failed(throttle, "ann")

    throttle.take_back(["ann", "unknown"], START + 4 * SECOND)
    throttle.take_back(["ann"], START + 9 * SECOND)

    assert throttle.wait(["ann"], START + 5 * SECOND) == ZERO


def test_a_key_without_failures_is_forgotten() -> None:
    throttle = LoginThrottle()

    throttle.fail(["ann"], START)
    throttle.take_back(["ann"], START)

    assert len(throttle) == 0


def test_old_failures_are_forgotten() -> None:
    throttle = LoginThrottle()
    failed(throttle, "ann", "ben")

    throttle.fail(["cid"], START + 2 * WINDOW)

    assert len(throttle) == 1


def test_the_number_of_keys_is_bounded() -> None:
    throttle = LoginThrottle(max_keys=2)

    for name in ("ann", "ben", "ann", "cid"):
        throttle.fail([name], START)

    assert len(throttle) == 2
    failed(throttle, "ann", count=4)
    assert throttle.wait(["ann"], START + 5 * SECOND) > ZERO


@given(st.lists(st.integers(0, 90), max_size=40))
def test_no_minute_has_more_than_five_admitted_failures(delays: list[int]) -> None:
    throttle = LoginThrottle()
    now, admitted = START, list[datetime]()
    for delay in delays:
        now += delay * SECOND
        if throttle.wait(["ann"], now) == ZERO:
            throttle.fail(["ann"], now)
            admitted.append(now)

    for time in admitted:
        assert len([other for other in admitted if ZERO <= other - time < WINDOW]) <= MAX_FAILURES

"""Delays grow, are bounded, and have jitter."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime.backoff import Backoff

ROUNDING = timedelta(microseconds=1)

durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365))
attempts = st.integers(min_value=0) | st.integers(min_value=0, max_value=40)
randoms = st.floats(min_value=0, max_value=1, exclude_max=True)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    initial, maximum = sorted((draw(durations), draw(durations)))
    return Backoff(
        initial=initial,
        maximum=maximum,
        factor=draw(st.floats(min_value=1, allow_nan=False, allow_infinity=False)),
        jitter=draw(st.floats(min_value=0, max_value=1)),
    )


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=3), jitter=0)

    delays = [backoff.delay(attempt, 0.5).total_seconds() for attempt in range(5)]

    assert delays == [0.5, 1, 2, 3, 3]


def test_jitter_spreads_a_delay_to_both_sides() -> None:
    backoff = Backoff(initial=timedelta(seconds=10), maximum=timedelta(seconds=20), jitter=0.1)

    delays = [backoff.delay(0, random).total_seconds() for random in (0.0, 0.5, 1.0)]

    assert delays == pytest.approx([9, 10, 11])


def test_at_the_maximum_jitter_only_shortens_a_delay() -> None:
    backoff = Backoff(initial=timedelta(seconds=10), maximum=timedelta(seconds=10), jitter=0.1)

    delays = [backoff.delay(0, random).total_seconds() for random in (0.0, 0.5, 1.0)]

    assert delays == pytest.approx([9, 9.5, 10])


@given(backoffs(), attempts, randoms)
def test_a_delay_is_never_negative_nor_longer_than_the_maximum(
    backoff: Backoff, attempt: int, random: float
) -> None:
    delay = backoff.delay(attempt, random)

    assert timedelta(0) <= delay <= backoff.maximum


@given(backoffs(), attempts, randoms)
def test_a_delay_is_never_shorter_than_the_initial_minus_jitter(
    backoff: Backoff, attempt: int, random: float
) -> None:
    delay = backoff.delay(attempt, random)

    assert delay >= backoff.initial * (1 - backoff.jitter) - ROUNDING


@given(backoffs(), attempts, attempts, randoms)
def test_delays_never_shrink_for_later_attempts(backoff: Backoff, one: int, other: int, random: float) -> None:
    earlier, later = sorted((one, other))

    assert backoff.delay(earlier, random) <= backoff.delay(later, random) + ROUNDING


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial": timedelta(seconds=-1)}, "initial: expected zero or more"),
        ({"maximum": timedelta(milliseconds=1)}, "maximum: expected between initial"),
        ({"maximum": timedelta.max}, "maximum: expected between initial"),
        ({"factor": 0.5}, "factor: expected 1 or more"),
        ({"factor": float("inf")}, "factor: expected 1 or more"),
        ({"factor": float("nan")}, "factor: expected 1 or more"),
        ({"jitter": 1.5}, "jitter: expected between 0 and 1"),
    ],
)
def test_an_invalid_schedule_is_rejected(arguments: dict[str, object], message: str) -> None:
    valid: dict[str, object] = {"initial": timedelta(seconds=1), "maximum": timedelta(seconds=9)}

    with pytest.raises(ValueError, match=message):
        Backoff(**(valid | arguments))  # type: ignore[arg-type]  # deliberately wrong

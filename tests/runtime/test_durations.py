"""Durations are parsed as in Go."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime import durations

MAX_DURATION = timedelta(microseconds=(2**63 - 1) // 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("5s", timedelta(seconds=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("1.s", timedelta(seconds=1)),
        ("3us", timedelta(microseconds=3)),
        ("3µs", timedelta(microseconds=3)),
        ("3μs", timedelta(microseconds=3)),
        ("2000ns", timedelta(microseconds=2)),
        ("-1m5s", timedelta(seconds=-65)),
        ("+1s", timedelta(seconds=1)),
        ("0", timedelta(0)),
        ("-0", timedelta(0)),
        ("0s", timedelta(0)),
        ("1s1s", timedelta(seconds=2)),
    ],
)
def test_durations_that_go_accepts_are_accepted(text: str, expected: timedelta) -> None:
    assert durations.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        ".",
        ".s",
        "-",
        "5 s",
        " 5s",
        "5s ",
        "5S",
        "1d",
        "1:30",
        "1h-30m",
        "٣s",
        "1e3s",
        "3000000h",
        "9" * 5000,
    ],
)
def test_durations_that_go_rejects_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        durations.parse(text)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=5), "5s"),
        (timedelta(minutes=30), "30m"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(hours=1, seconds=5), "1h5s"),
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=7), "7us"),
        (timedelta(seconds=-5), "-5s"),
    ],
)
def test_a_duration_is_rendered_in_its_largest_units(duration: timedelta, expected: str) -> None:
    assert durations.render(duration) == expected


@given(st.timedeltas(min_value=-MAX_DURATION, max_value=MAX_DURATION))
def test_a_rendered_duration_parses_to_the_same(duration: timedelta) -> None:
    assert durations.parse(durations.render(duration)) == duration


@given(st.text(max_size=80))
def test_any_string_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        parsed = durations.parse(text)
    except ValueError:
        return

    assert abs(parsed) <= MAX_DURATION + timedelta(microseconds=1)

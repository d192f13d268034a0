from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift import debounce
from sentinel.core.drift.debounce import MAX_OBJECTS, Burst, Debounce

START = datetime(2026, 1, 1, tzinfo=UTC)
TWO_SECONDS = Debounce(timedelta(seconds=2), timedelta(seconds=10))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def burst_of(*events: tuple[float, str]) -> Burst:
    burst = None
    for seconds, drifted in events:
        burst = debounce.add(burst, drifted, after(seconds))
    assert burst is not None
    return burst


def test_a_single_event_is_due_after_the_window() -> None:
    assert TWO_SECONDS.due(burst_of((0, "a"))) == after(2)


def test_each_event_restarts_the_window() -> None:
    assert TWO_SECONDS.due(burst_of((0, "a"), (1.5, "a"))) == after(3.5)


def test_events_without_a_pause_are_due_after_the_maximum_wait() -> None:
    burst = burst_of(*((n / 2, "a") for n in range(100)))

    assert TWO_SECONDS.due(burst) == after(10)


def test_a_burst_names_the_object_that_drifted_first() -> None:
    burst = burst_of((0, "b"), (1, "a"), (2, "b"))

    assert burst.first == "b"
    assert burst.objects == ("b", "a")
    assert burst.events == 3


def test_a_burst_remembers_a_limited_number_of_objects() -> None:
    burst = burst_of(*((0, str(n)) for n in range(MAX_OBJECTS + 5)))

    assert burst.objects == tuple(map(str, range(MAX_OBJECTS)))
    assert burst.events == MAX_OBJECTS + 5


def test_merged_bursts_begin_with_the_objects_of_the_first() -> None:
    merged = debounce.merge(burst_of((5, "b")), burst_of((1, "a"), (2, "b")))

    assert merged == Burst(after(1), after(5), ("b", "a"), 3)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("test-cluster", 1),
        ("my-cluster", 1),
        ("sentinel-cluster", 4),
        ("prod", 0),
        ("prod-cluster", 3),
        ("openbao", 0),
        ("scale-sentinel-0", 2),
        ("scale-sentinel-2", 0),
        ("scale-sentinel-3", 4),
    ],
)
def test_jitter_is_the_same_as_in_the_public_operator(name: str, seconds: int) -> None:
    assert debounce.jitter(name, timedelta(seconds=5)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("name", "maximum"), [("prod-cluster", timedelta(0)), ("", timedelta(seconds=5))])
def test_without_a_range_or_a_name_there_is_no_jitter(name: str, maximum: timedelta) -> None:
    assert debounce.jitter(name, maximum) == timedelta(0)


@given(st.text(min_size=1), st.integers(1, 60))
def test_jitter_is_below_its_maximum(name: str, seconds: int) -> None:
    assert timedelta(0) <= debounce.jitter(name, timedelta(seconds=seconds)) < timedelta(seconds=seconds)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_a_burst_is_due_within_the_maximum_wait(times: list[float]) -> None:
    burst = burst_of(*((seconds, "a") for seconds in sorted(times)))

    assert burst.opened < TWO_SECONDS.due(burst) <= burst.opened + TWO_SECONDS.max_wait

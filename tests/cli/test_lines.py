"""Plain lines, for pipes and files."""

from __future__ import annotations

import io

from tests.cli.reports import cycle, judge

from sentinel.cli.lines import Lines
from sentinel.ports import Outcome
from sentinel.testing.clock import START


def write(stream: io.StringIO) -> Lines:
    return Lines(resource_type="clusters", stream=stream, started=START)


def test_each_event_and_each_cycle_that_did_something_is_a_line() -> None:
    stream = io.StringIO()

    cycle(write(stream), [judge("cls-1", generation=2), judge("cls-2")])

    assert stream.getvalue().splitlines() == [
        "2025-01-01T00:00:00Z clusters event cls-1: generation changed - new spec to reconcile"
        " (generation 2, observed 1): confirmed",
        "2025-01-01T00:00:00Z clusters cycle 2 resources, 1 published, 1 skipped, 0 paced, 0 failed",
    ]


def test_an_idle_cycle_is_silent() -> None:
    stream = io.StringIO()

    cycle(write(stream), [judge("cls-1")])

    assert stream.getvalue() == ""


def test_trouble_is_told() -> None:
    stream = io.StringIO()

    cycle(write(stream), [judge("cls-1", generation=2)], outcome=Outcome.REFUSED, fetch_error="no answer")

    event, summary = stream.getvalue().splitlines()
    assert event.endswith(": refused")
    assert summary.endswith("1 failed; no answer")


def test_a_fault_of_our_own_is_named_without_its_text() -> None:
    stream = io.StringIO()

    write(stream).crashed(RuntimeError("hunter2"))

    assert "RuntimeError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()

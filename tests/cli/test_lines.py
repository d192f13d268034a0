"""Plain lines, for pipes and files."""

from __future__ import annotations

import io
import os

import pytest

from sentinel.cli.lines import Lines
from sentinel.ports import Outcome
from sentinel.testing.clock import START
from tests.cli.reports import cycle, judge


def unexpected() -> None:
    raise AssertionError("the pipe is not broken")


def write(stream: io.StringIO) -> Lines:
    return Lines(resource_type="clusters", stream=stream, started=START, on_broken_pipe=unexpected)


def test_each_event_and_each_cycle_that_did_something_is_a_line() -> None:
    stream = io.StringIO()

    cycle(write(stream), [judge("cls-1", generation=2), judge("cls-2")])

    assert stream.getvalue().splitlines() == [
        "2025-01-01T00:00:00Z clusters event cls-1 (generation 2, observed 1) confirmed:"
        " generation changed - new spec to reconcile",
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
    assert " refused: " in event
    assert summary.endswith("1 failed; no answer")


def test_a_fault_of_our_own_is_named_without_its_text() -> None:
    stream = io.StringIO()

    write(stream).crashed(RuntimeError("hunter2"))

    assert "RuntimeError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_a_reader_that_has_gone_is_told_and_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    told: list[str] = []

    stream = os.fdopen(writing, "w")
    lines = Lines(
        resource_type="clusters", stream=stream, started=START, on_broken_pipe=lambda: told.append("gone")
    )
    lines.crashed(RuntimeError())

    assert told == ["gone"]
    with pytest.raises(BrokenPipeError):
        stream.close()

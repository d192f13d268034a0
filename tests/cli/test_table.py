"""Tables, durations and numbers for people, and progress messages."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest

from sentinel.cli import table
from sentinel.cli.pulse.inspection import WalkProgress


def test_columns_are_aligned_and_numbers_right_aligned() -> None:
    lines = list(table.render(("NAME", "COUNT"), [("a", "1"), ("longer", "1,000")], numbers=("COUNT",)))

    assert lines == [
        "NAME    COUNT",
        "a           1",
        "longer  1,000",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert list(table.render(("A", "B"), [])) == ["A  B"]


def test_control_characters_are_escaped_and_empty_cells_are_dashes() -> None:
    assert list(table.render(("A", "B"), [("\x1b[2J", "")]))[1] == r"\x1b[2J  -"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (250, "4m 10s"),
        (3600, "1h"),
        (3700, "1h 1m"),
        (90_000, "1d 1h"),
        (86_400 * 400, "400d"),
    ],
)
def test_a_duration_is_its_two_largest_units(seconds: float, words: str) -> None:
    assert table.format_duration(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.03333, "0.0333"), (6.25, "6.25"), (12, "12"), (99.96, "100"), (1234.5, "1,234")],
)
def test_a_number_has_three_significant_digits(number: float, text: str) -> None:
    assert table.format_number(number) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_of_a_long_walk_is_shown_on_a_terminal_and_cleared() -> None:
    terminal = Terminal()
    readings = iter([0.0, 0.5, 1.5, 1.6, 2.0])
    progress = WalkProgress(terminal, now=lambda: next(readings))

    for fetched in (100, 2_000, 3_000, 4_000):
        progress(fetched)
    progress.clear()

    shown = terminal.getvalue().split("\r")
    assert shown == ["", "2,000 resources read", "4,000 resources read", " " * len("4,000 resources read"), ""]


def test_progress_is_not_shown_in_a_pipe() -> None:
    pipe = io.StringIO()
    progress = WalkProgress(pipe, now=iter(range(0, 100, 10)).__next__)

    progress(100)
    progress.clear()

    assert pipe.getvalue() == ""

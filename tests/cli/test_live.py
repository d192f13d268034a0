"""The screen: everything has its place, whatever the size of the terminal."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from sentinel.cli.board import Board
from sentinel.cli.live import HeldLog, Hint, LiveView, draw
from sentinel.ports import Outcome
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle import Stopping
from sentinel.testing.clock import START
from tests.cli.reports import SECOND, cycle, judge

SHOW_CURSOR, LEAVE_SCREEN = "\x1b[?25h", "\x1b[?1049l"
HINTS = [
    Hint("curl http://127.0.0.1:8080/readyz", "does it do its job?"),
    Hint("Ctrl-C", "end it"),
]


def busy_board(*, clusters: int = 10, pools: int = 8) -> Board:
    board = Board(started=START)
    one, other = board.observer("clusters"), board.observer("nodepools")
    for _ in range(3):
        cycle(one, [judge(f"cls-{number}", generation=1 + number % 2) for number in range(clusters)])
        cycle(other, [judge(f"np-{number}", is_ready=False, age=number * SECOND) for number in range(pools)])
    return board


def screen(board: Board, *, width: int = 80, height: int = 24) -> list[str]:
    console = Console(
        width=width, height=height, file=io.StringIO(), record=True, highlight=False, force_terminal=True
    )
    console.print(draw(board, now=START, title="up --demo", hints=HINTS, width=width, height=height))
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40), (200, 60)])
def test_a_screen_is_filled_and_not_exceeded(width: int, height: int) -> None:
    lines = screen(busy_board(), width=width, height=height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 5), (40, 10), (60, 12)])
def test_a_terminal_that_is_too_small_is_no_error(width: int, height: int) -> None:
    assert screen(busy_board(), width=width, height=height)


@pytest.mark.parametrize("width", [80, 120])
def test_every_resource_shows_its_generations_age_and_prospect(width: int) -> None:
    board = Board(started=START)
    cycle(
        board.observer("clusters"),
        [
            judge("steady", generation=3, observed_generation=3, age=4 * SECOND),
            judge("changed", generation=4, observed_generation=3),
            judge("waiting", generation=4, observed_generation=3, is_paced=True),
            judge("held", generation=4, observed_generation=3, is_paused=True),
        ],
    )

    text = "\n".join(screen(board, width=width))

    rows = {line.split()[1]: line.split() for line in text.splitlines() if line[1:2] in ("●", "○")}
    assert rows["steady"][2:] == ["3/3", "ready", "4s", "in", "11s"]
    assert rows["changed"][2:] == ["4/3", "ready", "1s", "→", "sent"]
    assert rows["waiting"][2:] == ["4/3", "ready", "1s", "paced"]
    assert rows["held"][2:] == ["4/3", "ready", "1s", "paused"]


def test_a_requested_pulse_is_told() -> None:
    board = Board(started=START)

    cycle(board.observer("clusters"), [judge("asked", requested=START)])

    assert any("pulse requested" in line for line in screen(board))


def test_events_are_told_with_their_reasons_word_for_word() -> None:
    text = "\n".join(screen(busy_board(), height=40))

    assert "generation changed - new spec to reconcile" in text
    assert "max age expired (not ready)" in text


def test_an_event_that_failed_says_how() -> None:
    board = Board(started=START)

    cycle(board.observer("clusters"), [judge("cls-1", generation=2)], outcome=Outcome.UNROUTABLE)

    assert any("unroutable: generation changed" in line for line in screen(board))


def test_what_to_try_next_is_at_the_foot() -> None:
    lines = screen(busy_board())

    assert [line.split()[0] for line in lines[-3:]] == ["try", "curl", "Ctrl-C"]


def test_a_fleet_larger_than_the_terminal_says_how_many_are_not_shown() -> None:
    lines = screen(busy_board(clusters=100))

    assert any("… and 88 more" in line for line in lines)
    assert len(lines) == 24


def test_a_board_on_which_nothing_has_happened_can_be_drawn() -> None:
    board = Board(started=START)
    board.observer("clusters")

    assert len(screen(board)) == 24


async def test_the_view_draws_until_it_is_stopped_and_gives_the_screen_back() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, height=24)
    view = LiveView(board=busy_board(), clock=SystemClock(), title="up --demo", hints=HINTS, console=console)
    stopping = Stopping()

    running = asyncio.create_task(view.run(stopping))
    await asyncio.sleep(0)
    stopping.request()
    await asyncio.wait_for(running, timeout=20)

    assert "try next" in terminal.getvalue()
    assert terminal.getvalue().endswith(SHOW_CURSOR + LEAVE_SCREEN)


def test_log_lines_wait_until_the_screen_is_free_and_few_are_kept() -> None:
    terminal = io.StringIO()
    held = HeldLog(terminal)

    for number in range(1_000):
        held.write(f"line {number}\n")
    meanwhile = terminal.getvalue()
    held.release()

    assert meanwhile == ""
    assert terminal.getvalue().splitlines() == [f"line {number}" for number in range(500, 1_000)]

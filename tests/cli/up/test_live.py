"""The screen: everything has its place, whatever the size of the terminal."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from sentinel.cli.client.rows import Item
from sentinel.cli.up.dashboard_state import DashboardState, Shelf
from sentinel.cli.up.live import HeldLog, LiveView
from sentinel.cli.up.narration import Activity, Tone
from sentinel.cli.up.screen import draw
from sentinel.cli.up.welcome import Hint
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import Health
from sentinel.testing.clock import START
from tests.cli.up.reports import REQUIRED, SECOND, cycle, item, judge

SHOW_CURSOR, LEAVE_SCREEN = "\x1b[?25h", "\x1b[?1049l"
HINTS = [
    Hint("sentinel create clusters --name one", "ask for a cluster"),
    Hint("sentinel watch clusters", "see it become ready"),
    Hint("sentinel why ID", "what does it wait for?"),
]
DONE = (ConditionStatus.TRUE, "Done", "")
WAITS = (ConditionStatus.FALSE, "PreconditionsNotMet", "Waiting for validation to complete")
READY = dict.fromkeys(REQUIRED, DONE)


def board_with(clusters: Sequence[Item], *, pools: int = 0, total: int | None = None) -> DashboardState:
    board = DashboardState(started=START)
    board.put_up(Shelf("clusters", REQUIRED, clusters, len(clusters) if total is None else total))
    board.put_up(Shelf("nodepools", ("validation",), [item(f"pool-{number}") for number in range(pools)], pools))
    return board


def busy_board(clusters: int = 10, pools: int = 8) -> DashboardState:
    board = board_with([item(f"cluster-{number}", READY) for number in range(clusters)], pools=pools)
    for number in range(60):
        board.tell(
            Activity(
                at=START, source="pulse", resource_id=f"id-cluster-{number % 5}", text="max age expired (ready)"
            )
        )
    return board


def screen(
    board: DashboardState,
    *,
    width: int = 80,
    height: int = 24,
    troubles: Sequence[str] = (),
    hints: Sequence[Hint] = HINTS,
) -> list[str]:
    console = Console(
        width=width, height=height, file=io.StringIO(), record=True, highlight=False, force_terminal=True
    )
    drawn = draw(board, now=START, title="http://here", hints=hints, troubles=troubles, width=width, height=height)
    console.print(drawn)
    return console.export_text().splitlines()


def row(lines: Sequence[str], name: str) -> list[str]:
    [found] = [line.split() for line in lines if line[1:2] in ("●", "○", "✕") and f" {name} " in line]
    return found[2:]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40), (200, 60)])
@pytest.mark.parametrize("clusters", [0, 3, 30, 300])
def test_a_screen_is_filled_and_not_exceeded(width: int, height: int, clusters: int) -> None:
    lines = screen(busy_board(clusters), width=width, height=height, troubles=["dns: broken"] * 5)

    assert len(lines) == height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 5), (40, 10), (60, 12)])
def test_a_terminal_that_is_too_small_is_no_error(width: int, height: int) -> None:
    assert screen(busy_board(), width=width, height=height)


def test_a_resource_shows_how_it_stands_and_what_each_adapter_says() -> None:
    fails = (ConditionStatus.FALSE, "SpecRejected", "replicas: expected a positive integer, got 0")
    board = board_with(
        [
            item("fine", READY, generation=3, available_at=3),
            item("broken", {"validation": fails, "dns": WAITS}, generation=2, available_at=1),
            item("going", READY, is_deleting=True),
        ]
    )
    cycle(board.observer("clusters"), [judge("id-fine", age=4 * SECOND), judge("id-broken", generation=2)])

    lines = screen(board, width=160)

    assert row(lines, "fine") == ["3/3", "yes", "yes", "in", "11s", "✓validation", "✓dns", "✓provision"]
    assert row(lines, "broken")[:8] == ["2/2", "no", "at", "1", "→", "sent", "✗validation", "…dns"]
    assert any("·provision – replicas: expected a positive integer, got 0" in line for line in lines)
    assert row(lines, "going")[:3] == ["1/1", "deleting", "no"]


def test_paced_and_paused_are_said() -> None:
    board = board_with([item("waiting"), item("held", is_paused=True)])
    cycle(
        board.observer("clusters"),
        [judge("id-waiting", generation=2, is_paced=True), judge("id-held", generation=2, is_paused=True)],
    )

    lines = screen(board)

    assert row(lines, "waiting")[3] == "paced"
    assert row(lines, "held")[3] == "paused"


def test_what_waits_for_something_comes_first_in_a_fleet_larger_than_the_terminal() -> None:
    clusters = [item(f"fine-{number}", READY) for number in range(299)]

    lines = screen(board_with([*clusters, item("broken")]))

    assert "broken" in next(line for line in lines if line[1:2] in ("●", "○"))
    assert any("more" in line and "…" in line for line in lines)


def test_what_was_not_even_read_is_counted() -> None:
    lines = screen(board_with([item("one", READY)], total=5_000))

    assert any("clusters (5000)" in line for line in lines)
    assert any("… and 5000 more" in line or "… and 4999 more" in line for line in lines)


def test_of_a_kind_too_large_to_be_read_the_ready_are_counted_by_its_pulse() -> None:
    board = board_with([item(f"fine-{number}", READY) for number in range(5)], total=1_200)
    cycle(board.observer("clusters"), [judge(f"c{number}", is_ready=number >= 3) for number in range(1_200)])

    lines = screen(board)

    assert "1197 of 1200 ready" in lines[0]
    assert any("… and 1196 more, 3 of them not ready" in line for line in lines)


def test_happenings_are_told_by_name() -> None:
    board = busy_board(3)
    board.tell(Activity(at=START, source="dns", resource_id="id-cluster-1", text="done", tone=Tone.GOOD))

    lines = screen(board)

    assert any(line.split()[1:] == ["dns", "cluster-1", "done"] for line in lines)
    assert any(line.split()[1:3] == ["pulse", "cluster-2"] for line in lines)


def test_long_names_keep_their_ends() -> None:
    board = board_with([item(f"a-rather-long-name-of-a-cluster-{number}") for number in range(2)])

    lines = [line for line in screen(board) if line[1:2] == "○"]

    assert [line.split()[1][-1] for line in lines] == ["0", "1"]


def test_what_is_wrong_is_at_the_top() -> None:
    lines = screen(busy_board(), troubles=["adapter dns: failure 3 in a row"])

    assert lines[1].split() == ["!", "adapter", "dns:", "failure", "3", "in", "a", "row"]


def test_what_to_try_next_is_at_the_foot() -> None:
    lines = screen(busy_board())

    assert [line.split()[0] for line in lines[-4:]] == ["try", "sentinel", "sentinel", "sentinel"]


def test_on_a_small_terminal_no_hint_is_missing() -> None:
    hints = [Hint("export SENTINEL_TOKEN=…", ""), Hint("export SENTINEL_SERVER=…", ""), *HINTS]

    lines = screen(busy_board(), hints=hints)

    assert lines[-1].split()[:3] == ["sentinel", "why", "ID"]


async def test_a_terminal_that_is_stopped_is_not_drawn_on() -> None:
    terminal = io.StringIO()
    view = LiveView(
        board=busy_board(),
        clock=SystemClock(),
        title="here",
        hints=HINTS,
        health=Health(),
        console=Console(file=terminal, force_terminal=True, width=80, height=24),
        has_room=lambda: False,
    )
    stopping = Stopping()

    running = asyncio.create_task(view.run(stopping))
    await asyncio.sleep(0)
    stopping.request()
    await asyncio.wait_for(running, timeout=20)

    assert "try next" not in terminal.getvalue()
    assert terminal.getvalue().endswith(SHOW_CURSOR + LEAVE_SCREEN)


async def test_the_view_draws_until_it_is_stopped_and_gives_the_screen_back() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, height=24)
    health = Health()
    health.add(readiness={"adapter dns": lambda: "is not well"})
    view = LiveView(
        board=busy_board(), clock=SystemClock(), title="here", hints=HINTS, health=health, console=console
    )
    stopping = Stopping()

    running = asyncio.create_task(view.run(stopping))
    await asyncio.sleep(0)
    stopping.request()
    await asyncio.wait_for(running, timeout=20)

    assert "try next" in terminal.getvalue()
    assert "adapter dns: is not well" in terminal.getvalue()
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

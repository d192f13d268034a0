"""What is gathered from reports."""

from __future__ import annotations

from sentinel.cli.board import Board
from sentinel.ports import Outcome
from sentinel.testing.clock import START
from tests.cli.reports import SECOND, cycle, judge


def shown(board: Board) -> dict[str, list[str]]:
    return {
        column.resource_type: [judgement.resource.id for judgement in column.judgements]
        for column in board.columns
    }


def test_each_pulse_has_its_column() -> None:
    board = Board(started=START)
    clusters, pools = board.observer("clusters"), board.observer("nodepools")

    cycle(pools, [judge("np-1")])
    cycle(clusters, [judge("cls-1"), judge("cls-2")])

    assert shown(board) == {"clusters": ["cls-1", "cls-2"], "nodepools": ["np-1"]}


def test_what_vanished_is_gone_with_the_next_cycle() -> None:
    board = Board(started=START)
    clusters = board.observer("clusters")

    cycle(clusters, [judge("cls-1"), judge("cls-2")])
    cycle(clusters, [judge("cls-2")])

    assert shown(board) == {"clusters": ["cls-2"]}


def test_a_walk_that_broke_off_hides_nothing_and_says_why() -> None:
    board = Board(started=START)
    clusters = board.observer("clusters")

    cycle(clusters, [judge("cls-1"), judge("cls-2")])
    cycle(clusters, [judge("cls-1")], fetch_error="the fleet does not answer")

    assert shown(board) == {"clusters": ["cls-1", "cls-2"]}
    assert board.latest(1)[0].trouble == "clusters: the fleet does not answer"


def test_sums_grow_over_all_pulses() -> None:
    board = Board(started=START)
    clusters, pools = board.observer("clusters"), board.observer("nodepools")

    cycle(clusters, [judge("cls-1", generation=2), judge("cls-2"), judge("cls-3", generation=2, is_paced=True)])
    cycle(pools, [judge("np-1", generation=2)], outcome=Outcome.UNCONFIRMED)

    totals = board.totals
    assert (totals.cycles, totals.published, totals.skipped, totals.paced, totals.failed) == (2, 1, 1, 1, 1)


def test_the_newest_happening_comes_first_and_few_are_kept() -> None:
    board = Board(started=START)
    clusters = board.observer("clusters")

    cycle(clusters, [judge(f"cls-{number}", generation=2) for number in range(1_000)])
    latest = board.latest(10_000)

    assert len(latest) == 200
    assert latest[0].judgement is not None
    assert latest[0].judgement.resource.id == "cls-999"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    board = Board(started=START)
    clusters = board.observer("clusters")
    due = [judge(f"cls-{number}", generation=2) for number in range(20)]

    cycle(clusters, due, now=START + 60 * SECOND)

    assert board.rate(START + 61 * SECOND) == 2.0
    assert board.rate(START + 71 * SECOND) == 0.0


def test_a_board_that_nobody_looks_at_does_not_grow() -> None:
    board = Board(started=START)
    clusters = board.observer("clusters")

    for number in range(500):
        cycle(clusters, [judge("cls-1", generation=2)], now=START + number * SECOND)

    assert len(board._published) <= 20


def test_a_fault_of_our_own_is_named_without_its_text() -> None:
    board = Board(started=START)

    board.observer("clusters").crashed(RuntimeError("hunter2"))

    assert board.latest(1)[0].trouble == "clusters: a fault of our own (RuntimeError); the log has it"

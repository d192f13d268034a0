"""What is gathered for the screen."""

from __future__ import annotations

from sentinel.cli.up.dashboard_state import DashboardState, Shelf
from sentinel.cli.up.narration import Activity, AdapterNarrator
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.publisher import Outcome
from sentinel.testing.clock import START, ManualClock
from tests.cli.up.reports import REQUIRED, SECOND, cycle, evaluation, item, judge


def happening(number: int) -> Activity:
    return Activity(at=START, source="pulse", resource_id=f"c{number}", text="something")


def test_a_prospect_is_that_of_the_last_walk_that_saw_everything() -> None:
    board = DashboardState(started=START)
    clusters, pools = board.observer("clusters"), board.observer("nodepools")

    cycle(clusters, [judge("c1"), judge("c2", generation=2)])
    cycle(pools, [judge("p1")])
    cycle(clusters, [judge("c2")], fetch_error="the fleet does not answer")

    prospect = board.prospect("c2")
    assert prospect is not None
    assert prospect.verdict is PacingVerdict.PUBLISH
    assert board.prospect("c1") is not None
    assert board.prospect("p1") is not None
    assert board.prospect("c3") is None


def test_sums_grow_over_all_pulses_and_adapters() -> None:
    board = DashboardState(started=START)
    clusters, pools = board.observer("clusters"), board.observer("nodepools")
    dns = AdapterNarrator(adapter="dns", tell=board.tell, clock=ManualClock())

    cycle(clusters, [judge("c1", generation=2), judge("c2"), judge("c3", generation=2, is_paced=True)])
    cycle(pools, [judge("p1", generation=2)], outcome=Outcome.UNCONFIRMED)
    for _ in range(2):
        dns.evaluated(evaluation(OutcomeKind.DONE))

    totals = board.totals
    assert (totals.published, totals.paced, totals.failed, totals.evaluations) == (1, 1, 1, 2)


def test_an_evaluation_that_says_the_same_again_is_counted_and_not_shown() -> None:
    board = DashboardState(started=START)
    dns = AdapterNarrator(adapter="dns", tell=board.tell, clock=ManualClock())

    for ending in (
        OutcomeKind.IN_PROGRESS,
        OutcomeKind.IN_PROGRESS,
        OutcomeKind.DONE,
        OutcomeKind.DONE,
        OutcomeKind.IN_PROGRESS,
    ):
        dns.evaluated(evaluation(ending))

    assert [each.text for each in board.latest(9)] == ["in progress", "done", "in progress"]
    assert board.totals.evaluations == 5


def test_names_are_learnt_from_whoever_knows_them() -> None:
    board = DashboardState(started=START)

    board.put_up(Shelf("clusters", REQUIRED, [item("amber")], 1))
    board.tell(Activity(at=START, source="dns", resource_id="c1", name="birch", text="done"))

    assert [board.name_of(each) for each in ("id-amber", "c1", "c2")] == ["amber", "birch", ""]


def test_a_shelf_takes_the_place_of_the_one_before() -> None:
    board = DashboardState(started=START)

    board.put_up(Shelf("clusters", REQUIRED, [item("amber")], 1))
    board.put_up(Shelf("nodepools", (), [], 0))
    board.put_up(Shelf("clusters", REQUIRED, [], 0))

    assert [(shelf.plural, shelf.total) for shelf in board.shelves] == [("clusters", 0), ("nodepools", 0)]


def test_the_newest_happening_comes_first_and_few_are_kept() -> None:
    board = DashboardState(started=START)

    for number in range(1_000):
        board.tell(happening(number))
    latest = board.latest(10_000)

    assert len(latest) == 200
    assert latest[0].resource_id == "c999"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    board = DashboardState(started=START)

    due = [judge(f"c{number}", generation=2) for number in range(20)]
    cycle(board.observer("clusters"), due, now=START + 60 * SECOND)

    assert board.rate(START + 61 * SECOND) == 2.0
    assert board.rate(START + 71 * SECOND) == 0.0


def test_a_board_that_nobody_looks_at_does_not_grow() -> None:
    board = DashboardState(started=START)
    clusters = board.observer("clusters")

    for number in range(500):
        cycle(clusters, [judge("c1", generation=2)], now=START + number * SECOND)

    assert len(board._published) <= 20

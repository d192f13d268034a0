"""The state behind the live view."""

from __future__ import annotations

import pytest

from sentinel.cli.up.activity import Activity, AdapterActivityObserver
from sentinel.cli.up.dashboard_state import DashboardObserver, DashboardState, KindState
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import StreamReport
from sentinel.testing.clock import START, ManualClock
from tests.cli.up.reports import REQUIRED, SECOND, decide_on, evaluation, make_summary, report_cycle


@pytest.fixture
def state() -> DashboardState:
    return DashboardState(started=START)


def make_activity(number: int) -> Activity:
    return Activity(at=START, source="pulse", resource_id=f"c{number}", text="something")


def test_decisions_come_from_the_last_complete_cycle(state: DashboardState) -> None:
    clusters, pools = DashboardObserver(state, "clusters"), DashboardObserver(state, "nodepools")

    report_cycle(clusters, [decide_on("c1"), decide_on("c2", generation=2)])
    report_cycle(pools, [decide_on("p1")])
    report_cycle(clusters, [decide_on("c2")], fetch_error="the fleet does not answer")

    decision = state.decision_on("c2")
    assert decision is not None
    assert decision.verdict is PacingVerdict.PUBLISH
    assert state.decision_on("c1") is not None
    assert state.decision_on("p1") is not None
    assert state.decision_on("c3") is None


def test_totals_include_all_pulses_and_adapters(state: DashboardState) -> None:
    clusters, pools = DashboardObserver(state, "clusters"), DashboardObserver(state, "nodepools")
    dns = AdapterActivityObserver(adapter="dns", on_activity=state.record, clock=ManualClock())

    report_cycle(
        clusters, [decide_on("c1", generation=2), decide_on("c2"), decide_on("c3", generation=2, is_paced=True)]
    )
    report_cycle(pools, [decide_on("p1", generation=2)], outcome=PublishOutcome.UNCONFIRMED)
    for _ in range(2):
        dns.evaluated(evaluation(OutcomeKind.DONE))

    totals = state.totals
    assert (totals.published, totals.paced, totals.failed, totals.evaluations) == (1, 1, 1, 2)


def test_totals_include_what_a_stream_published(state: DashboardState) -> None:
    observer = DashboardObserver(state, "clusters")

    report_cycle(observer, [decide_on("c1", generation=2)])
    observer.streamed(StreamReport(changed=3, published=2))

    assert state.totals.published == 3


def test_a_repeated_evaluation_is_counted_but_not_shown(state: DashboardState) -> None:
    dns = AdapterActivityObserver(adapter="dns", on_activity=state.record, clock=ManualClock())

    for outcome in (
        OutcomeKind.IN_PROGRESS,
        OutcomeKind.IN_PROGRESS,
        OutcomeKind.DONE,
        OutcomeKind.DONE,
        OutcomeKind.IN_PROGRESS,
    ):
        dns.evaluated(evaluation(outcome))

    assert [each.text for each in state.latest(9)] == ["in progress", "done", "in progress"]
    assert state.totals.evaluations == 5


def test_names_come_from_the_list_and_from_activities(state: DashboardState) -> None:
    state.update(KindState("clusters", REQUIRED, [make_summary("amber")], 1))
    state.record(Activity(at=START, source="dns", resource_id="c1", name="birch", text="done"))

    assert [state.name_of(each) for each in ("id-amber", "c1", "c2")] == ["amber", "birch", ""]


def test_an_update_replaces_the_state_of_its_kind(state: DashboardState) -> None:
    state.update(KindState("clusters", REQUIRED, [make_summary("amber")], 1))
    state.update(KindState("nodepools", (), [], 0))
    state.update(KindState("clusters", REQUIRED, [], 0))

    assert [(kind.plural, kind.total) for kind in state.kinds] == [("clusters", 0), ("nodepools", 0)]


def test_activities_are_newest_first_and_bounded(state: DashboardState) -> None:
    for number in range(1_000):
        state.record(make_activity(number))
    latest = state.latest(10_000)

    assert len(latest) == 200
    assert latest[0].resource_id == "c999"


def test_the_rate_covers_the_last_seconds(state: DashboardState) -> None:
    due = [decide_on(f"c{number}", generation=2) for number in range(20)]
    report_cycle(DashboardObserver(state, "clusters"), due, now=START + 60 * SECOND)

    assert state.events_per_second(START + 61 * SECOND) == 2.0
    assert state.events_per_second(START + 71 * SECOND) == 0.0


def test_state_that_is_never_read_does_not_grow(state: DashboardState) -> None:
    clusters = DashboardObserver(state, "clusters")

    for number in range(500):
        report_cycle(clusters, [decide_on("c1", generation=2)], now=START + number * SECOND)

    assert len(state._published) <= 20

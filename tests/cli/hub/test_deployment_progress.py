"""What a deployment prints while it goes on, and when it is over."""

from __future__ import annotations

from datetime import timedelta

from sentinel.cli.hub.deployment_progress import changes, with_row
from sentinel.core.hub.analysis import Finding, Outcome, Verdict
from sentinel.core.hub.deployment import Canary, Count, Metric, Strategy
from sentinel.core.hub.rollout_state import Abort, Analyse, Analysed, Pause, ReportedState, Rollback, TimePassed
from tests.cli.hub.deployments_shown import progress
from tests.core.hub.rollout_driver import SECOND, Driver, batches_of, of_type, request

NAMES = tuple(f"edge-{number}" for number in range(1, 8))


def test_the_first_look_says_what_it_is_about() -> None:
    asked = request("a", "b", "c", rolling=batches_of(2))
    driver = Driver(asked)
    driver.start()

    assert list(changes(None, progress(driver, asked))) == [
        "d: api@2 to 3 instances in 2 batches, rolling",
        "batch 1 of 2: a, b",
        "running",
    ]


def test_nothing_new_is_nothing_to_print() -> None:
    asked = request("a", "b")
    driver = Driver(asked)
    driver.start()
    shown = progress(driver, asked)

    driver.accept("a")

    assert list(changes(shown, shown)) == []
    assert list(changes(shown, progress(driver, asked))) == []


def test_a_failure_tells_the_words_of_the_proxy_and_who_went_back() -> None:
    asked = request(*NAMES, rolling=batches_of(1))
    driver = Driver(asked)
    driver.start()
    before = progress(driver, asked)

    driver.fail("edge-1", "line 3: unknown directive")
    failed = progress(driver, asked)
    driver.go_back("edge-1")

    assert list(changes(before, failed)) == [
        "edge-1: failed: line 3: unknown directive",
        "edge-2, edge-3, edge-4, edge-5, edge-6 and 1 more: skipped: the deployment has failed",
        "failed: 1 of 7 instances failed",
        "rollback running",
    ]
    assert list(changes(failed, progress(driver, asked))) == [
        "edge-1: rolled back: line 3: unknown directive",
        "rollback completed",
    ]


def test_batches_that_passed_between_two_looks_are_told() -> None:
    asked = request("a", "b", "c")
    driver = Driver(asked)
    driver.start()
    before = progress(driver, asked)
    for name in "ab":
        driver.complete(name)
        driver.wait(timedelta(minutes=1))

    told = list(changes(before, progress(driver, asked)))

    assert told == ["batch 2 of 3: b", "batch 3 of 3: c", "a, b: completed"]


def test_the_numbers_of_canaries_are_told_against_their_limits() -> None:
    asked = request("a", "b", strategy=Strategy.CANARY, canary=Canary(instances=Count(1)))
    driver = Driver(asked)
    driver.start()
    driver.complete("a")
    watched = progress(driver, asked)
    [question] = of_type(driver.wait(30 * SECOND), Analyse)
    findings = (
        Finding(metric=Metric.ERROR_RATE, value=0.0125, limit=0.05),
        Finding(metric=Metric.LATENCY_P99_MS, value=120, limit=150, baseline=100),
    )
    driver.do(Analysed(question.until, Verdict(outcome=Outcome.SUCCESS, requests=1200, findings=findings)))

    assert list(changes(None, watched))[1:3] == ["canaries 1 of 2: a", "canary: watching"]
    assert list(changes(watched, progress(driver, asked))) == [
        "canary: success after 1,200 requests",
        "canary: error_rate 0.0125, at most 0.05",
        "canary: latency_p99_ms 120, at most 150 (untouched instances: 100)",
    ]


def test_a_pause_says_why() -> None:
    asked = request("a", "b")
    driver = Driver(asked)
    driver.start()
    before = progress(driver, asked)

    driver.do(Pause())

    assert list(changes(before, progress(driver, asked))) == ["paused: paused by a user"]


def test_it_is_over_when_nothing_is_in_progress_any_more() -> None:
    asked = request("a", "b")
    driver = Driver(asked)
    driver.start()
    running = progress(driver, asked)
    driver.do(Abort())
    in_flight = progress(driver, asked)
    driver.complete("a")
    aborted = progress(driver, asked)
    driver.do(Rollback())
    going_back = progress(driver, asked)
    driver.go_back("a")

    seen = [each.is_over for each in (running, in_flight, aborted, going_back, progress(driver, asked))]
    assert seen == [False, False, True, False, True]
    assert not aborted.is_success


def test_only_a_completed_deployment_that_stays_is_a_success() -> None:
    asked = request("a")
    driver = Driver(asked)
    driver.start()
    driver.complete("a")
    completed = progress(driver, asked)
    driver.do(Rollback())
    driver.go_back("a")
    back = progress(driver, asked)

    assert (completed.is_success, completed.is_over) == (True, True)
    assert (back.is_success, back.is_over) == (False, True)


def test_an_event_that_is_late_changes_nothing() -> None:
    asked = request("a", "b")
    driver = Driver(asked)
    driver.start()
    pending = progress(driver, asked)
    driver.do(TimePassed())
    driver.now += SECOND
    driver.report("a", ReportedState.COMPLETED)
    completed = progress(driver, asked)

    assert with_row(pending, completed.rows["a"]).rows["a"].state == "completed"
    assert with_row(completed, pending.rows["a"]) is completed

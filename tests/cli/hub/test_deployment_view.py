"""The live view of a deployment, frame by frame."""

from __future__ import annotations

import io
import os
from datetime import timedelta

import pytest

from sentinel.cli.hub.deployment_progress import Progress
from sentinel.cli.hub.deployment_screen import LineLog, LiveView
from sentinel.cli.hub.deployment_view import Line, Span, draw
from sentinel.core.hub.analysis import Finding, Outcome, Verdict
from sentinel.core.hub.deployment import Canary, Count, Criterion, Metric, Request, Strategy
from sentinel.core.hub.rollout_state import Analyse, Analysed, Pause
from tests.cli.hub.deployments_shown import progress
from tests.core.hub.rollout_driver import MINUTE, SECOND, START, Driver, batches_of, of_type, request

SIZE = os.terminal_size((80, 24))


def lines(
    shown: Progress, *, now: timedelta = 90 * SECOND, height: int | None = None, problem: str = ""
) -> list[str]:
    frame = draw(shown, now=START + now, height=height, problem=problem)
    return [line.render() for line in frame]


def canary() -> tuple[Driver, Request]:
    criteria = (
        Criterion(metric=Metric.ERROR_RATE, max=0.01),
        Criterion(metric=Metric.LATENCY_P99_MS, max_vs_baseline=1.5),
    )
    asked = request(
        *(f"edge-{number}" for number in range(1, 6)),
        strategy=Strategy.CANARY,
        rolling=batches_of(3),
        canary=Canary(instances=Count(2), success_criteria=criteria),
    )
    return Driver(asked), asked


def test_a_canary_that_is_watched() -> None:
    driver, asked = canary()
    driver.start()
    driver.complete("edge-1", "edge-2")

    assert lines(progress(driver, asked)) == [
        " api@2 → 5 instances · canary · running · 1m 30s  d",
        "   ██░░░                           2 completed · 3 waiting",
        "",
        " ▸ canary 1  ██                              2/2  watched for 3m 30s more",
        "   batch 2   ░░░                             0/3",
        "",
        "   canaries  no numbers yet",
        "   · error_rate              –  at most 0.01",
        "   · latency_p99_ms          –  at most 1.5 × untouched instances",
        "",
        "   ✓ edge-1  completed        api@1 → api@2",
        "   ✓ edge-2  completed        api@1 → api@2",
    ]


def test_a_canary_that_violates_a_limit_and_goes_back() -> None:
    driver, asked = canary()
    driver.start()
    driver.complete("edge-1", "edge-2")
    [question] = of_type(driver.wait(30 * SECOND), Analyse)
    findings = (
        Finding(metric=Metric.ERROR_RATE, value=0.004, limit=0.01),
        Finding(metric=Metric.LATENCY_P99_MS, value=900, limit=150, baseline=100),
    )
    verdict = Verdict(outcome=Outcome.FAILED, reason="too slow", requests=4_210, findings=findings)
    driver.do(Analysed(question.until, verdict))
    driver.go_back("edge-1")

    assert lines(progress(driver, asked)) == [
        " api@2 → 5 instances · canary · failed · rollback running · 1m 30s  d",
        "   canary analysis: too slow",
        "   █▓░░░                           1 completed · 1 rolled back · 3 skipped",
        "",
        "   canary 1  █▓                              2/2",
        "   batch 2   ░░░                             3/3",
        "",
        "   canaries  failed · 4,210 requests",
        "   ✓ error_rate          0.004  at most 0.01",
        "   ✗ latency_p99_ms        900  at most 150 (untouched instances: 100)",
        "",
        "   ↩ edge-1  rolled back      back at api@1",
        "   ✓ edge-2  completed        api@1 ← api@2",
        "   – edge-3, edge-4, edge-5 skipped: the deployment has failed",
    ]


def test_the_numbers_of_good_canaries_are_shown_again_at_the_end() -> None:
    driver, asked = canary()
    driver.start()
    driver.complete("edge-1", "edge-2")
    [question] = of_type(driver.wait(5 * MINUTE), Analyse)
    findings = (Finding(metric=Metric.ERROR_RATE, value=0.004, limit=0.01),)
    driver.do(Analysed(question.until, Verdict(outcome=Outcome.SUCCESS, requests=4_210, findings=findings)))
    during = lines(progress(driver, asked))
    driver.complete("edge-3", "edge-4", "edge-5")

    shown = lines(progress(driver, asked))

    assert "canary · completed" in shown[0]
    assert shown.index("   ✓ error_rate          0.004  at most 0.01") == 1 + shown.index(
        "   canaries  success · 4,210 requests"
    )
    assert not [line for line in during if "error_rate" in line]


def test_too_little_data_says_how_much_is_missing() -> None:
    driver, asked = canary()
    driver.start()
    driver.complete("edge-1", "edge-2")
    for _ in range(3):
        for question in of_type(driver.wait(5 * MINUTE), Analyse):
            driver.do(Analysed(question.until, Verdict(outcome=Outcome.INCONCLUSIVE, reason="few", requests=3)))

    shown = lines(progress(driver, asked))

    assert shown[0].startswith(" api@2 → 5 instances · canary · paused")
    assert shown[1] == "   canary analysis is inconclusive: few"
    assert "   canaries  inconclusive · 3 requests of 100 that are needed" in shown


def test_what_failed_is_first_with_the_words_of_the_proxy() -> None:
    asked = request("a", "b", "c", rolling=batches_of(3, threshold=2))
    driver = Driver(asked)
    driver.start()
    driver.complete("a")
    driver.fail("c", "line 3: \x1b[2Junknown directive")

    rows = lines(progress(driver, asked))[-3:]

    assert rows == [
        "   ✗ c  failed           api@1 → api@2  line 3: \\x1b[2Junknown directive",
        "   ● b  pending          api@1 → api@2",
        "   ✓ a  completed        api@1 → api@2",
    ]


def test_the_next_batch_says_when_it_begins() -> None:
    asked = request("a", "b", rolling=batches_of(1, delay=MINUTE))
    driver = Driver(asked)
    driver.start()
    driver.complete("a")

    soon = lines(progress(driver, asked), now=20 * SECOND)
    due = lines(progress(driver, asked), now=2 * MINUTE)

    assert soon[4] == "   batch 2   ░                               0/1  begins in 40s"
    assert due[4].endswith("begins when enough targets are online")


def test_a_paused_deployment_says_what_its_next_batch_waits_for() -> None:
    asked = request("a", "b", rolling=batches_of(1, delay=MINUTE))
    driver = Driver(asked)
    driver.start()
    driver.complete("a")
    driver.do(Pause())

    for passed in (20 * SECOND, 2 * MINUTE):
        shown = lines(progress(driver, asked), now=passed)
        assert shown[5] == "   batch 2   ░                               0/1  begins when it is resumed"


@pytest.mark.parametrize("height", [10, 16, 24, 50])
def test_a_large_fleet_fits_the_terminal(height: int) -> None:
    asked = request(*(f"edge-{number}" for number in range(400)), rolling=batches_of(10, threshold=400))
    driver = Driver(asked)
    driver.start()
    for batch in range(20):
        driver.complete(*(f"edge-{batch * 10 + number}" for number in range(9)))
        driver.fail(f"edge-{batch * 10 + 9}", "no")

    shown = lines(progress(driver, asked), height=height)

    assert len(shown) <= height
    assert any("▸ batch 21" in line for line in shown)
    assert any("batches not shown" in line for line in shown)
    assert any("✗ edge-9 " in line for line in shown) or height == 10


def test_a_line_is_cut_and_colored() -> None:
    line = Line("abc", Span("def", "red"), "ghi")

    assert line.render(width=5) == "abcd…"
    assert line.render(width=9) == "abcdefghi"
    assert line.render(width=5, is_colored=True) == "abc\x1b[31md\x1b[0m…"


def test_a_frame_is_drawn_over_the_one_before() -> None:
    asked = request("a", "b", rolling=batches_of(2, threshold=2))
    driver = Driver(asked)
    driver.start()
    stream = io.StringIO()
    view = LiveView(stream, now=lambda: START, size=lambda: SIZE)

    view.show(progress(driver, asked), "")
    first = stream.getvalue()
    driver.complete("a", "b")
    view.show(progress(driver, asked), "cannot reach the hub")
    view.close()
    second = stream.getvalue().removeprefix(first)

    assert first.startswith("\x1b[?25l")
    assert "Ctrl-C ends this view" in first
    assert second.startswith(f"\x1b[{first.count(chr(10))}F")
    assert "Ctrl-C" not in second
    assert "! cannot reach the hub" in second
    assert second.endswith("\x1b[?25h")


def test_a_paused_deployment_says_what_a_user_can_do() -> None:
    driver, asked = canary()
    driver.start()
    stream = io.StringIO()

    driver.do(Pause())
    LiveView(stream, now=lambda: START, size=lambda: SIZE).show(progress(driver, asked), "")

    assert "it waits for you: sentinel hub deployments resume|promote|abort|rollback d" in stream.getvalue()


def test_without_a_terminal_each_change_is_a_line() -> None:
    asked = request("a")
    driver = Driver(asked)
    driver.start()
    stream = io.StringIO()
    log = LineLog(stream, now=lambda: START)

    log.show(progress(driver, asked), "")
    log.show(progress(driver, asked), "cannot reach the hub; trying again")
    log.show(progress(driver, asked), "cannot reach the hub; trying again")
    driver.complete("a")
    log.show(progress(driver, asked), "")

    assert [line[9:] for line in stream.getvalue().splitlines()] == [
        "d: api@2 to 1 instance in 1 batch, rolling",
        "batch 1 of 1: a",
        "running",
        "cannot reach the hub; trying again",
        "a: completed",
        "completed",
    ]

"""Metrics and logs of an adapter."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.adapter.telemetry import AdapterTelemetry
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.testing.adapter import make_resource

CLUSTER = make_resource("Cluster", id="c1", generation=3)
SECOND = timedelta(seconds=1)


class Output:
    """The telemetry with its metrics and log lines."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.stream = io.StringIO()
        self.observer = AdapterTelemetry(registry=self.registry, log=get_logger("adapter"), adapter="dns")

    def metric(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"hyperfleet_adapter_{name}", {"adapter": "dns", **labels})
        assert value is not None, name
        return value

    @property
    def lines(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def output() -> Iterator[Output]:
    output = Output()
    logging = configure_logging("debug", "json", stream=output.stream)
    yield output
    logging.restore()


def evaluation(
    outcome: OutcomeKind = OutcomeKind.DONE, *, error: BaseException | None = None, is_lingering: bool = False
) -> Evaluation:
    return Evaluation(
        resource=CLUSTER,
        outcome=outcome,
        reason="Completed",
        message="the zone exists",
        duration=2 * SECOND,
        events=4,
        error=error,
        is_lingering=is_lingering,
    )


def test_every_series_exists_from_the_start(output: Output) -> None:
    for kind in OutcomeKind:
        assert output.metric("evaluations_total", outcome=kind.value) == 0
    for outcome in ReportOutcome:
        assert output.metric("reports_total", answer=outcome.value) == 0
    for reason in SkipReason:
        assert output.metric("skipped_total", reason=reason.value) == 0
    assert output.metric("in_flight") == 0
    assert output.metric("dead_letters_total") == 0
    assert output.metric("queue_age_seconds_count") == 0
    assert output.metric("evaluation_duration_seconds_count") == 0


def test_an_evaluation_is_counted_timed_and_logged(output: Output) -> None:
    output.observer.started()
    assert output.metric("in_flight") == 1

    output.observer.evaluated(evaluation())

    assert output.metric("in_flight") == 0
    assert output.metric("evaluations_total", outcome="done") == 1
    assert output.metric("evaluation_duration_seconds_sum") == 2
    [line] = output.lines
    assert line["event"] == "evaluation.done"
    assert (line["resource_id"], line["generation"], line["events"]) == ("c1", 3, 4)


def test_an_exception_is_logged_with_its_traceback(output: Output) -> None:
    try:
        raise ValueError("no such zone")
    except ValueError as error:
        output.observer.started()
        output.observer.evaluated(evaluation(OutcomeKind.BROKEN, error=error))

    [line] = output.lines
    assert line["level"] == "error"
    assert "no such zone" in str(line["traceback"])
    assert output.metric("evaluations_total", outcome="broken") == 1


def test_a_task_that_ignores_cancellation_is_an_error(output: Output) -> None:
    output.observer.started()
    output.observer.evaluated(evaluation(OutcomeKind.BROKEN, is_lingering=True))

    assert [line["event"] for line in output.lines] == ["evaluation.broken", "evaluation.lingers"]


def test_an_interrupted_evaluation_is_no_longer_in_flight(output: Output) -> None:
    output.observer.started()
    output.observer.interrupted()

    assert output.metric("in_flight") == 0


def test_queue_age_is_never_negative(output: Output) -> None:
    output.observer.dequeued(-5 * SECOND)
    output.observer.dequeued(3 * SECOND)

    assert output.metric("queue_age_seconds_sum") == 3


def test_skipped_events_are_counted_one_by_one(output: Output) -> None:
    output.observer.skipped(SkipReason.FRESH, "c1", 3)

    assert output.metric("skipped_total", reason="fresh") == 3
    assert output.lines[0]["level"] == "debug"


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (ReportResult(ReportOutcome.STORED), "debug"),
        (ReportResult(ReportOutcome.GONE), "debug"),
        (ReportResult(ReportOutcome.DISCARDED, DiscardReason.STALE_TIME), "info"),
        (ReportResult(ReportOutcome.REFUSED, "400: no"), "error"),
    ],
)
def test_report_results_are_counted_and_logged_by_severity(
    output: Output, result: ReportResult, level: str
) -> None:
    output.observer.reported(CLUSTER, result)

    assert output.metric("reports_total", answer=result.outcome.value) == 1
    assert output.lines[0]["level"] == level


def test_dead_lettered_and_nacked_events_are_counted_and_logged(output: Output) -> None:
    output.observer.dead_lettered("expected a CloudEvent", "e1", "")
    output.observer.nacked("500", "c1", 2)

    assert output.metric("dead_letters_total") == 1
    assert output.metric("returned_total") == 2
    assert [line["event"] for line in output.lines] == ["event.dead_lettered", "event.returned"]


def test_api_failures_are_warnings_or_errors_for_an_operator(output: Output) -> None:
    output.observer.api_failed(ApiOperation.READ, ApiUnavailable("down"))
    output.observer.api_failed(ApiOperation.REPORT, ApiUnavailable("403", needs_operator=True))
    output.observer.api_recovered(ApiOperation.READ)

    assert [line["level"] for line in output.lines] == ["warning", "error", "info"]
    assert output.metric("api_errors_total", operation="read") == 1


def test_a_bug_of_the_service_is_logged_with_its_traceback(output: Output) -> None:
    output.observer.crashed("c1", RuntimeError("a bug"))

    assert output.lines[0]["event"] == "evaluation.crashed"
    assert "a bug" in str(output.lines[0]["error"])

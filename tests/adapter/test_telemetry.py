"""An adapter's work as metrics and log lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from sentinel.adapter.api_gate import ApiOperation
from sentinel.adapter.observer import Evaluation, ReportDisposition, SkipReason
from sentinel.adapter.telemetry import AdapterTelemetry
from sentinel.core.adapter.task import Ending
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.testing.adapter import make_resource

CLUSTER = make_resource("Cluster", id="c1", generation=3)
SECOND = timedelta(seconds=1)


class Shown:
    """What can be seen from outside."""

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
def shown() -> Iterator[Shown]:
    shown = Shown()
    logging = configure_logging("debug", "json", stream=shown.stream)
    yield shown
    logging.restore()


def evaluation(
    ending: Ending = Ending.DONE, *, error: BaseException | None = None, is_lingering: bool = False
) -> Evaluation:
    return Evaluation(
        resource=CLUSTER,
        ending=ending,
        reason="Said",
        message="so it is",
        duration=2 * SECOND,
        events=4,
        error=error,
        is_lingering=is_lingering,
    )


def test_every_series_is_there_before_anything_has_happened(shown: Shown) -> None:
    for ending in Ending:
        assert shown.metric("evaluations_total", outcome=ending.value) == 0
    for answer in ReportDisposition:
        assert shown.metric("reports_total", answer=answer.value) == 0
    for reason in SkipReason:
        assert shown.metric("skipped_total", reason=reason.value) == 0
    assert shown.metric("in_flight") == 0
    assert shown.metric("dead_letters_total") == 0
    assert shown.metric("queue_age_seconds_count") == 0
    assert shown.metric("evaluation_duration_seconds_count") == 0


def test_an_evaluation_is_counted_timed_and_logged(shown: Shown) -> None:
    shown.observer.started()
    assert shown.metric("in_flight") == 1

    shown.observer.evaluated(evaluation())

    assert shown.metric("in_flight") == 0
    assert shown.metric("evaluations_total", outcome="done") == 1
    assert shown.metric("evaluation_duration_seconds_sum") == 2
    [line] = shown.lines
    assert line["event"] == "evaluation.done"
    assert (line["resource_id"], line["generation"], line["events"]) == ("c1", 3, 4)


def test_an_exception_is_logged_with_its_traceback(shown: Shown) -> None:
    try:
        raise ValueError("no such zone")
    except ValueError as error:
        shown.observer.started()
        shown.observer.evaluated(evaluation(Ending.BROKEN, error=error))

    [line] = shown.lines
    assert line["level"] == "error"
    assert "no such zone" in str(line["traceback"])
    assert shown.metric("evaluations_total", outcome="broken") == 1


def test_a_task_that_lingers_is_an_error(shown: Shown) -> None:
    shown.observer.started()
    shown.observer.evaluated(evaluation(Ending.BROKEN, is_lingering=True))

    assert [line["event"] for line in shown.lines] == ["evaluation.broken", "evaluation.lingers"]


def test_an_interrupted_evaluation_is_no_longer_in_flight(shown: Shown) -> None:
    shown.observer.started()
    shown.observer.interrupted()

    assert shown.metric("in_flight") == 0


def test_queue_age_is_never_negative(shown: Shown) -> None:
    shown.observer.dequeued(-5 * SECOND)
    shown.observer.dequeued(3 * SECOND)

    assert shown.metric("queue_age_seconds_sum") == 3


def test_skipped_events_are_counted_one_by_one(shown: Shown) -> None:
    shown.observer.skipped(SkipReason.FRESH, "c1", 3)

    assert shown.metric("skipped_total", reason="fresh") == 3
    assert shown.lines[0]["level"] == "debug"


@pytest.mark.parametrize(
    ("answer", "detail", "level"),
    [
        (ReportDisposition.STORED, None, "debug"),
        (ReportDisposition.GONE, None, "debug"),
        (ReportDisposition.DISCARDED, DiscardReason.STALE_TIME, "info"),
        (ReportDisposition.REFUSED, "400: no", "error"),
    ],
)
def test_answers_are_counted_and_logged_by_their_weight(
    shown: Shown, answer: ReportDisposition, detail: DiscardReason | str | None, level: str
) -> None:
    shown.observer.reported(CLUSTER, answer, detail)

    assert shown.metric("reports_total", answer=answer.value) == 1
    assert shown.lines[0]["level"] == level


def test_dead_letters_and_returned_events_are_counted_and_logged(shown: Shown) -> None:
    shown.observer.dead_lettered("expected a CloudEvent", "e1", "")
    shown.observer.nacked("500", "c1", 2)

    assert shown.metric("dead_letters_total") == 1
    assert shown.metric("returned_total") == 2
    assert [line["event"] for line in shown.lines] == ["event.dead_lettered", "event.returned"]


def test_trouble_with_the_api_is_a_warning_and_an_error_where_a_person_is_needed(shown: Shown) -> None:
    shown.observer.api_failed(ApiOperation.READ, ApiUnavailable("down"))
    shown.observer.api_failed(ApiOperation.REPORT, ApiUnavailable("403", needs_operator=True))
    shown.observer.api_recovered(ApiOperation.READ)

    assert [line["level"] for line in shown.lines] == ["warning", "error", "info"]
    assert shown.metric("api_errors_total", operation="read") == 1


def test_a_fault_of_ours_is_logged_with_its_traceback(shown: Shown) -> None:
    shown.observer.crashed("c1", RuntimeError("a bug"))

    assert shown.lines[0]["event"] == "evaluation.crashed"
    assert "a bug" in str(shown.lines[0]["error"])

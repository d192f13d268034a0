"""A pulse's reports as metrics and log lines."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from sentinel.core.events import Event
from sentinel.core.pulse import quiet_pages
from sentinel.core.pulse.decision import OBSERVED_AHEAD, Decision, Reason
from sentinel.core.pulse.observation import MalformedItem, Observation
from sentinel.core.pulse.pacing import PacedDecision, PacingVerdict
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PendingEvent, PublishedBatch
from sentinel.pulse.telemetry import PulseMetrics, PulseTelemetry
from sentinel.runtime.log import configure_logging, get_logger

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)


class TelemetryHarness:
    """A `PulseTelemetry` with its log lines and metric values."""

    def __init__(self, level: str) -> None:
        self.registry = CollectorRegistry()
        self.stream = io.StringIO()
        self.logging = configure_logging(level, "json", stream=self.stream)
        self.telemetry = PulseTelemetry(
            series=PulseMetrics(self.registry).claim(shard="region=us-east", resource_type="clusters"),
            log=get_logger("pulse"),
            broker_type="rabbitmq",
        )

    @property
    def lines(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in self.stream.getvalue().splitlines()]

    def named(self, event: str) -> list[dict[str, object]]:
        return [line for line in self.lines if line["event"] == event]

    def value(self, name: str, **labels: str) -> float | None:
        labels |= {"shard": "region=us-east", "resource_type": "clusters"}
        return self.registry.get_sample_value(f"hyperfleet_sentinel_{name}", labels)


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Iterator[TelemetryHarness]:
    harness = TelemetryHarness(getattr(request, "param", "info"))
    yield harness
    harness.logging.restore()


def make_paced(
    identifier: str = "cls-1",
    *,
    verdict: PacingVerdict = PacingVerdict.PUBLISH,
    reason: Reason = Reason.GENERATION_CHANGED,
    is_ready: bool = True,
    warning: str = "",
) -> PacedDecision:
    seen = Observation(identifier, "Cluster", 2, 1, is_ready, NOW, {})
    is_due = reason.is_due
    return PacedDecision(seen, Decision(is_due, reason, NOW, NOW, timedelta(seconds=10), warning), verdict)


def make_page(*paced: PacedDecision, malformed: Sequence[MalformedItem] = ()) -> PageReport:
    return PageReport(paced, malformed, NOW, quiet_pages.count(paced))


def pending(
    identifier: str, missing: tuple[str, ...] = (), failed: tuple[tuple[str, str], ...] = ()
) -> PendingEvent:
    event = Event(f"id-of-{identifier}", "t", identifier, "2025-10-21T12:00:00Z", msgspec.Raw(b"{}"))
    return PendingEvent(make_paced(identifier), event, missing, failed)


def report(*, is_complete: bool = True, fetch_error: str = "", deferred: int = 0) -> CycleReport:
    return CycleReport(
        started=NOW,
        seconds=0.25,
        fetched=40,
        skipped=30,
        published=3,
        paced=2,
        deferred=deferred,
        failed=1,
        unroutable=0,
        malformed=0,
        is_complete=is_complete,
        fetch_error=fetch_error,
    )


def test_every_series_exists_before_the_first_cycle(harness: TelemetryHarness) -> None:
    assert harness.value("events_published_total") == 0
    assert harness.value("resources_skipped_total", ready_state="ready") == 0
    assert harness.value("resources_skipped_total", ready_state="not_ready") == 0
    assert harness.value("api_errors_total", operation="fetch_resources") == 0
    assert harness.value("api_errors_total", operation="config_load") == 0
    assert harness.value("broker_errors_total", broker_type="rabbitmq") == 0
    assert harness.value("config_reloads_total") == 0
    for reason in Reason:
        decision = "skip" if reason in ("max age not expired", "paused") else "publish"
        assert harness.value("decisions_total", decision=decision, reason=reason.value) == 0


def test_decisions_are_counted_before_pacing_and_skips_by_readiness(harness: TelemetryHarness) -> None:
    page = make_page(
        make_paced(),
        make_paced(verdict=PacingVerdict.PACED),
        make_paced(verdict=PacingVerdict.REPEATED),
        make_paced(verdict=PacingVerdict.SKIP, reason=Reason.NOT_EXPIRED),
        make_paced(verdict=PacingVerdict.SKIP, reason=Reason.NOT_EXPIRED, is_ready=False),
        malformed=[MalformedItem("cls-7", "no generation", "items[3]")],
    )

    harness.telemetry.decided(page)

    changed = Reason.GENERATION_CHANGED.value
    assert harness.value("decisions_total", decision="publish", reason=changed) == 2
    assert harness.value("decisions_total", decision="skip", reason="max age not expired") == 2
    assert harness.value("paced_total") == 1
    assert harness.value("resources_skipped_total", ready_state="ready") == 1
    assert harness.value("resources_skipped_total", ready_state="not_ready") == 1
    assert harness.value("malformed_resources_total") == 1
    (line,) = harness.named("resource.malformed")
    assert (line["resource_id"], line["problem"], line["position"]) == ("cls-7", "no generation", "items[3]")


def test_skips_are_not_logged_at_info(harness: TelemetryHarness) -> None:
    harness.telemetry.decided(make_page(make_paced(verdict=PacingVerdict.SKIP, reason=Reason.NOT_EXPIRED)))

    assert harness.lines == []
    assert not harness.telemetry.needs_every_decision


def test_an_unchanged_page_counts_like_its_decisions(harness: TelemetryHarness) -> None:
    skipped = make_page(make_paced(verdict=PacingVerdict.SKIP, reason=Reason.PAUSED, is_ready=False))

    harness.telemetry.decided(skipped)
    harness.telemetry.decided(msgspec.structs.replace(skipped, paced_decisions=()))

    assert harness.value("decisions_total", decision="skip", reason="paused") == 2
    assert harness.value("resources_skipped_total", ready_state="not_ready") == 2


@pytest.mark.parametrize("harness", ["debug"], indirect=True)
def test_skips_are_logged_at_debug_with_reason_and_next_event_time(harness: TelemetryHarness) -> None:
    page = [
        make_paced(verdict=PacingVerdict.SKIP, reason=Reason.NOT_EXPIRED),
        make_paced(verdict=PacingVerdict.PACED),
    ]

    harness.telemetry.decided(make_page(*page))

    assert harness.telemetry.needs_every_decision
    (skipped,), (paced,) = harness.named("resource.skipped"), harness.named("resource.paced")
    assert skipped["reason"] == "max age not expired"
    assert skipped["next_event_time"] == "2025-10-21T12:00:00Z"
    assert paced["resource_id"] == "cls-1"


def test_published_events_are_logged_at_info_with_their_reason(harness: TelemetryHarness) -> None:
    harness.telemetry.published(PublishedBatch([pending("cls-1")], [PublishOutcome.CONFIRMED], [0.004], ""))

    (line,) = harness.named("event.published")
    assert line["resource_id"] == "cls-1"
    assert line["reason"] == "generation changed - new spec to reconcile"
    assert harness.value("events_published_total") == 1
    assert harness.value("publish_confirm_seconds_count") == 1


def test_only_confirmed_events_count_as_published(harness: TelemetryHarness) -> None:
    outcomes = [
        PublishOutcome.CONFIRMED,
        PublishOutcome.UNROUTABLE,
        PublishOutcome.REFUSED,
        PublishOutcome.UNCONFIRMED,
    ]

    harness.telemetry.published(
        PublishedBatch([pending(f"c{n}") for n in range(4)], outcomes, [], "connection lost")
    )

    assert harness.value("events_published_total") == 1
    assert harness.value("unroutable_total") == 1
    assert harness.value("broker_errors_total", broker_type="rabbitmq") == 2
    (line,) = harness.named("event.failed")
    assert (line["events"], line["first_resource_id"], line["error"]) == (3, "c1", "connection lost")


def test_a_missing_field_is_logged_once_for_all_resources(harness: TelemetryHarness) -> None:
    batch = [pending(f"c{n}", missing=("region",), failed=(("owner", "can't evaluate"),)) for n in range(3)]

    for _ in range(2):
        harness.telemetry.published(PublishedBatch(batch, [PublishOutcome.CONFIRMED] * 3, [], ""))

    assert [line["field"] for line in harness.named("message_data.missing")] == ["region"]
    assert [line["field"] for line in harness.named("message_data.failed")] == ["owner"]
    assert harness.value("template_errors_total") == 6


def test_a_cycle_is_one_line(harness: TelemetryHarness) -> None:
    harness.telemetry.finished(report(deferred=4))

    (line,) = harness.lines
    assert line["event"] == "cycle.done"
    assert {key: line[key] for key in ("resources", "selector", "published", "skipped", "paced", "failed")} == {
        "resources": 40,
        "selector": "region=us-east",
        "published": 3,
        "skipped": 30,
        "paced": 2,
        "failed": 1,
    }
    assert line["seconds"] == 0.25
    assert harness.value("pending_resources") == 40
    assert harness.value("deferred_total") == 4
    assert harness.value("last_successful_poll_timestamp_seconds") == NOW.timestamp() + 0.25
    assert harness.value("reconcile_duration_seconds_count") == 1


def test_a_failed_walk_counts_an_error_and_keeps_the_gauges(harness: TelemetryHarness) -> None:
    harness.telemetry.finished(report())

    harness.telemetry.finished(report(is_complete=False, fetch_error="page 3: 500"))

    assert harness.value("api_errors_total", operation="fetch_resources") == 1
    assert harness.value("last_successful_poll_timestamp_seconds") == NOW.timestamp() + 0.25
    assert [line["error"] for line in harness.named("fetch.failed")] == ["page 3: 500"]


@pytest.mark.parametrize(("fetch_error", "cause"), [("page 3: 500", "page 3: 500"), ("", "asked to stop")])
def test_an_incomplete_cycle_names_the_cause(harness: TelemetryHarness, fetch_error: str, cause: str) -> None:
    harness.telemetry.finished(report(is_complete=False, fetch_error=fetch_error))

    (line,) = harness.named("cycle.broken_off")
    assert line["cause"] == cause


def test_a_complete_cycle_has_no_cause(harness: TelemetryHarness) -> None:
    harness.telemetry.finished(report())

    assert "cause" not in harness.named("cycle.done")[0]


def test_an_observed_generation_ahead_is_logged_once_per_cycle(harness: TelemetryHarness) -> None:
    page = [
        make_paced(f"c{n}", verdict=PacingVerdict.SKIP, reason=Reason.NOT_EXPIRED, warning=OBSERVED_AHEAD)
        for n in (1, 2)
    ]

    harness.telemetry.decided(make_page(*page))
    harness.telemetry.finished(report())
    harness.telemetry.finished(report())

    (line,) = harness.named("resource.ahead")
    assert line["problem"] == "observed_generation ahead of generation - potential API issue"
    assert (line["resources"], line["first_resource_id"]) == (2, "c1")


def test_many_malformed_items_are_all_counted_and_some_logged(harness: TelemetryHarness) -> None:
    items = [MalformedItem(f"cls-{n}", "bad") for n in range(25)]

    logged = []
    for _ in range(5):
        poll(harness, *items)
        logged.append(len(harness.named("resource.malformed")))

    assert harness.value("malformed_resources_total") == 125
    assert logged == [10, 20, 25, 25, 25]


def poll(harness: TelemetryHarness, *items: MalformedItem, is_complete: bool = True) -> None:
    """Report a cycle with these malformed items."""
    harness.telemetry.decided(make_page(malformed=items))
    harness.telemetry.finished(report(is_complete=is_complete))


def test_a_malformed_item_is_logged_once_per_change(harness: TelemetryHarness) -> None:
    def logged() -> list[object]:
        return [line["problem"] for line in harness.named("resource.malformed")]

    poll(harness, MalformedItem("cls-1", "no time", "items[3]"))
    poll(harness, MalformedItem("cls-1", "no time", "items[4]"))
    poll(harness, is_complete=False)
    poll(harness, MalformedItem("cls-1", "no time", "items[4]"))
    assert logged() == ["no time"]

    poll(harness, MalformedItem("cls-1", "no generation", "items[4]"))
    assert logged() == ["no time", "no generation"]

    poll(harness)
    poll(harness, MalformedItem("cls-1", "no generation", "items[4]"))
    assert logged() == ["no time", "no generation", "no generation"]
    assert harness.value("malformed_resources_total") == 5


def test_an_unexpected_error_is_logged_with_its_traceback(harness: TelemetryHarness) -> None:
    try:
        raise ZeroDivisionError("planted")
    except ZeroDivisionError as error:
        harness.telemetry.crashed(error)

    assert "ZeroDivisionError: planted" in harness.stream.getvalue()

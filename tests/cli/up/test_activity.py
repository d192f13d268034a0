"""The activities that pulses and adapters emit, and their lines."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from sentinel.adapter.observer import AdapterObservers, ApiOperation
from sentinel.cli.up.activity import (
    Activity,
    ActivityLevel,
    AdapterActivityObserver,
    PulseActivityObserver,
    format_line,
)
from sentinel.core.adapter.task import OutcomeKind
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import PulseObservers
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import START, ManualClock
from tests.cli.up.reports import decide_on, evaluation, report_cycle


@pytest.fixture
def activities() -> list[Activity]:
    """Everything that the observers have emitted."""
    return []


make_pulse_observer = partial(PulseActivityObserver, resource_type="clusters", clock=ManualClock())
make_adapter_observer = partial(AdapterActivityObserver, adapter="dns", clock=ManualClock())


@pytest.fixture
def pulse_observer(activities: list[Activity]) -> PulseActivityObserver:
    return make_pulse_observer(on_activity=activities.append)


@pytest.fixture
def adapter_observer(activities: list[Activity]) -> AdapterActivityObserver:
    return make_adapter_observer(on_activity=activities.append)


def test_each_published_event_is_shown_with_its_reason(
    activities: list[Activity], pulse_observer: PulseActivityObserver
) -> None:
    report_cycle(pulse_observer, [decide_on("c1", generation=2), decide_on("c2")])

    [activity] = activities
    assert (activity.source, activity.resource_id, activity.level) == ("pulse", "c1", ActivityLevel.INFO)
    assert activity.text == "generation changed - new spec to reconcile (generation 2, observed 1)"


def test_an_event_that_failed_is_shown_with_its_outcome(
    activities: list[Activity], pulse_observer: PulseActivityObserver
) -> None:
    report_cycle(pulse_observer, [decide_on("c1", generation=2)], outcome=PublishOutcome.UNROUTABLE)

    assert activities[0].level is ActivityLevel.ERROR
    assert activities[0].text.endswith(": unroutable")


def test_an_error_is_shown_when_it_begins_not_at_every_cycle(
    activities: list[Activity], pulse_observer: PulseActivityObserver
) -> None:
    for error in ("no answer", "no answer", "", "no answer"):
        report_cycle(pulse_observer, [], fetch_error=error)

    assert [each.text for each in activities] == ["clusters: no answer"] * 2


def test_an_internal_error_is_shown_without_its_text(
    activities: list[Activity], pulse_observer: PulseActivityObserver, adapter_observer: AdapterActivityObserver
) -> None:
    pulse_observer.crashed(RuntimeError("hunter2"))
    adapter_observer.crashed("c1", RuntimeError("hunter2"))

    assert len(activities) == 2
    assert all("RuntimeError" in each.text for each in activities)
    assert not any("hunter2" in each.text for each in activities)


@pytest.mark.parametrize("outcome", list(OutcomeKind))
def test_every_evaluation_is_shown(
    outcome: OutcomeKind, activities: list[Activity], adapter_observer: AdapterActivityObserver
) -> None:
    adapter_observer.evaluated(evaluation(outcome, "as it is"))

    [activity] = activities
    assert (activity.source, activity.resource_id, activity.name) == ("dns", "c1", "one")
    assert activity.text == f"{outcome.replace('_', ' ')}: as it is"
    assert activity.is_evaluation


def test_api_errors_and_recovery_are_shown(
    activities: list[Activity], adapter_observer: AdapterActivityObserver
) -> None:
    adapter_observer.api_failed(ApiOperation.READ, ApiUnavailable("refused"))
    adapter_observer.api_recovered(ApiOperation.READ)

    assert [each.text for each in activities] == ["cannot read: refused", "can read again"]


def test_refused_reports_and_lost_events_are_shown(
    activities: list[Activity], adapter_observer: AdapterActivityObserver
) -> None:
    seen = evaluation(OutcomeKind.DONE).resource

    adapter_observer.dead_lettered("not an event", "e1", "")
    adapter_observer.nacked("no answer", "c1", 2)
    adapter_observer.reported(seen, ReportResult(ReportOutcome.REFUSED, "too large"))
    adapter_observer.reported(seen, ReportResult(ReportOutcome.STORED))

    assert len(activities) == 3
    assert {each.level for each in activities} == {ActivityLevel.ERROR}


def test_starts_and_interruptions_are_not_shown(
    activities: list[Activity], adapter_observer: AdapterActivityObserver
) -> None:
    adapter_observer.started()
    adapter_observer.dequeued(timedelta(0))
    adapter_observer.interrupted()

    assert activities == []


def test_an_activity_is_a_line() -> None:
    done = Activity(at=START, source="dns", resource_id="c1", name="one", text="done")
    failed = Activity(at=START, source="pulse", text="clusters: no answer")

    assert format_line(done) == "2025-01-01T00:00:00Z dns c1 (one): done"
    assert format_line(failed) == "2025-01-01T00:00:00Z pulse: clusters: no answer"


def fail(activity: Activity) -> None:
    raise UnicodeEncodeError("ascii", "ö", 0, 1, "not ASCII")


def test_a_failing_pulse_observer_does_not_affect_others(
    activities: list[Activity], pulse_observer: PulseActivityObserver
) -> None:
    observers = PulseObservers(make_pulse_observer(on_activity=fail), pulse_observer, log=get_logger("test"))

    report_cycle(observers, [decide_on("c1", generation=2)], fetch_error="no answer")
    observers.crashed(ValueError())

    assert len(activities) == 3


def test_a_failing_adapter_observer_does_not_affect_others(
    activities: list[Activity], adapter_observer: AdapterActivityObserver
) -> None:
    observers = AdapterObservers(make_adapter_observer(on_activity=fail), adapter_observer, log=get_logger("test"))

    observers.evaluated(evaluation(OutcomeKind.DONE))
    observers.nacked("no answer", "c1", 1)
    observers.crashed("c1", ValueError())

    assert len(activities) == 3

"""What pulses and adapters report, in words; and as lines."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from sentinel.adapter.observer import ApiOperation
from sentinel.cli.up.lines import Lines
from sentinel.cli.up.narration import Activity, AdapterNarrator, PulseNarrator, Tone
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.core.adapter.task import OutcomeKind
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.publisher import Outcome
from sentinel.testing.clock import START, ManualClock
from tests.cli.up.reports import cycle, evaluation, judge


def pulse(told: list[Activity]) -> PulseNarrator:
    return PulseNarrator(resource_type="clusters", tell=told.append, clock=ManualClock())


def adapter(told: list[Activity]) -> AdapterNarrator:
    return AdapterNarrator(adapter="dns", tell=told.append, clock=ManualClock())


def test_each_event_is_told_with_its_reason_word_for_word() -> None:
    told: list[Activity] = []

    cycle(pulse(told), [judge("c1", generation=2), judge("c2")])

    [happening] = told
    assert (happening.source, happening.resource_id, happening.tone) == ("pulse", "c1", Tone.PLAIN)
    assert happening.text == "generation changed - new spec to reconcile (generation 2, observed 1)"


def test_an_event_that_failed_says_how() -> None:
    told: list[Activity] = []

    cycle(pulse(told), [judge("c1", generation=2)], outcome=Outcome.UNROUTABLE)

    assert told[0].tone is Tone.BAD
    assert told[0].text.endswith(": unroutable")


def test_trouble_is_told_when_it_begins_and_not_at_every_poll() -> None:
    told: list[Activity] = []
    narrator = pulse(told)

    for error in ("no answer", "no answer", "", "no answer"):
        cycle(narrator, [], fetch_error=error)

    assert [each.text for each in told] == ["clusters: no answer"] * 2


@pytest.mark.parametrize("narrate", [pulse, adapter])
def test_a_fault_of_our_own_is_named_without_its_text(narrate: object) -> None:
    told: list[Activity] = []

    if narrate is pulse:
        pulse(told).crashed(RuntimeError("hunter2"))
    else:
        adapter(told).crashed("c1", RuntimeError("hunter2"))

    assert "RuntimeError" in told[0].text
    assert "hunter2" not in told[0].text


@pytest.mark.parametrize("ending", list(OutcomeKind))
def test_every_evaluation_is_told(ending: OutcomeKind) -> None:
    told: list[Activity] = []

    adapter(told).evaluated(evaluation(ending, "as it is"))

    [happening] = told
    assert (happening.source, happening.resource_id, happening.name) == ("dns", "c1", "one")
    assert happening.text == f"{ending.replace('_', ' ').replace('ized', 'ised')}: as it is"
    assert happening.is_evaluation


def test_trouble_with_the_api_is_told_and_so_is_its_end() -> None:
    told: list[Activity] = []
    narrator = adapter(told)

    narrator.api_failed(ApiOperation.READ, ApiUnavailable("refused"))
    narrator.api_recovered(ApiOperation.READ)

    assert [each.text for each in told] == ["cannot read: refused", "can read again"]


def test_what_is_given_up_is_told() -> None:
    told: list[Activity] = []
    narrator = adapter(told)
    seen = evaluation(OutcomeKind.DONE).resource

    narrator.dead_lettered("not an event", "e1", "")
    narrator.nacked("no answer", "c1", 2)
    narrator.reported(seen, ReportResult(ReportOutcome.REFUSED, "too large"))
    narrator.reported(seen, ReportResult(ReportOutcome.STORED))

    assert len(told) == 3
    assert {each.tone for each in told} == {Tone.BAD}


def test_what_is_of_no_interest_is_not_told() -> None:
    told: list[Activity] = []
    narrator = adapter(told)

    narrator.started()
    narrator.dequeued(timedelta(0))
    narrator.interrupted()

    assert told == []


def test_a_happening_is_a_line() -> None:
    reading, writing = os.pipe()
    lines = Lines(StdoutQueue(writing))

    lines.tell(Activity(at=START, source="dns", resource_id="c1", name="one", text="done"))
    lines.tell(Activity(at=START, source="pulse", text="clusters: no\nanswer\x1b[2J"))

    with os.fdopen(reading) as read:
        written = [read.readline() for _ in range(2)]
    os.close(writing)
    assert [line.rstrip("\n") for line in written] == [
        "2025-01-01T00:00:00Z dns c1 (one): done",
        "2025-01-01T00:00:00Z pulse: clusters: no\\nanswer\\x1b[2J",
    ]

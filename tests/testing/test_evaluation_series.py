"""Several evaluations of an adapter in a row, and the example in the guide."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sentinel.adapter import Adapter, Done, Failed, Finalized, InProgress, PreconditionsNotMet
from sentinel.adapter.declaration import Context
from sentinel.core.adapter.resource import KnownReport, Resource
from sentinel.core.adapter.task import Outcome
from sentinel.core.fleet.documents import DiscardReason
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.testing.adapter import START, EvaluationSeries, make_resource, reported

GUIDE = Path(__file__).parents[2] / "docs/how-to/write-an-adapter.md"
STORED = ReportResult(ReportOutcome.STORED)
DISCARDED = ReportResult(ReportOutcome.DISCARDED, DiscardReason.UNKNOWN)


class Recorder:
    """An adapter that returns the given outcomes in turn and records what it got."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.adapter = Adapter("dns")
        self.previous: list[KnownReport | None] = []
        self._outcomes = list(outcomes)
        self.adapter.task(kinds=["Cluster"])(self._run)
        self.adapter.finalizer(kinds=["Cluster"])(self._run)

    async def _run(self, resource: Resource, context: Context) -> Outcome:
        self.previous.append(context.previous)
        return self._outcomes.pop(0)

    @property
    def data(self) -> list[object]:
        """The data of `context.previous` at each evaluation."""
        return [None if each is None else each.read_data() for each in self.previous]


def test_each_evaluation_gets_the_data_of_the_one_before() -> None:
    recorder = Recorder(
        PreconditionsNotMet(data=0),
        InProgress(data=1),
        InProgress(data=2),
        Done(data=3),
        InProgress(data=4),
        Done(),
    )
    series = EvaluationSeries(recorder.adapter, make_resource("Cluster"))

    for _ in range(6):
        series.run()

    assert recorder.data == [None, 0, 1, 2, 3, 4]
    assert series.results == [STORED, DISCARDED, DISCARDED, STORED, DISCARDED, STORED]
    assert [each.observed_time for each in series.reports] == [START + n * timedelta(seconds=10) for n in range(6)]


def test_the_report_of_another_adapter_can_be_set_in_between() -> None:
    adapter = Adapter("dns")

    @adapter.task(kinds=["Cluster"])
    async def wait(cluster: Resource, context: Context) -> Outcome:
        return Done() if cluster.is_available("validation") else PreconditionsNotMet()

    series = EvaluationSeries(adapter, make_resource("Cluster"))

    waiting = series.run()
    series.set_report(reported("validation", "False"))
    still_waiting = series.run()
    series.set_report(reported("validation"))
    done = series.run()

    available = [each.status_of("Available") for each in (waiting, still_waiting, done)]
    assert available == ["False", "False", "True"]


def test_the_own_report_cannot_be_set() -> None:
    series = EvaluationSeries(Recorder().adapter, make_resource("Cluster"))

    with pytest.raises(ValueError, match="expected the report of another adapter, got one of dns itself"):
        series.set_report(reported("dns"))


def test_an_earlier_report_of_its_own_is_the_first_previous() -> None:
    earlier = reported("dns", "False", at=START - timedelta(minutes=1), data={"zone": 7})
    recorder = Recorder(InProgress(), Done())
    series = EvaluationSeries(recorder.adapter, make_resource("Cluster", reports=[earlier]))

    series.run()
    series.run()

    assert recorder.previous[0] == earlier
    assert series.results == [DISCARDED, STORED]


def test_a_change_of_the_spec_and_a_deletion_raise_the_generation() -> None:
    recorder = Recorder(Done(), Failed(), Finalized())
    series = EvaluationSeries(recorder.adapter, make_resource("Cluster"))

    series.run()
    series.change_spec({"replicas": 3})
    series.run()
    series.delete()
    last = series.run()

    assert [each.observed_generation for each in series.reports] == [1, 2, 3]
    assert series.resource.spec == {"replicas": 3}
    assert last.status_of("Finalized") == "True"
    assert [each and each.observed_generation for each in recorder.previous] == [None, 1, 2]


async def test_it_works_in_an_asynchronous_test() -> None:
    series = EvaluationSeries(Recorder(Done(data={"zone": 7})).adapter, make_resource("Cluster"))

    await series.evaluate()

    assert series.previous is not None
    assert series.previous.read_data() == {"zone": 7}


def guide_examples() -> dict[str, Any]:
    """The names that the Python examples of the guide define, run one after the other."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)  # noqa: S102  # our own text
    return names


def test_the_test_in_the_guide_passes() -> None:
    examples = guide_examples()

    examples["test_a_job_is_started_once_and_then_followed"]()

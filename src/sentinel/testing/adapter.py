"""Run an adapter's task on a resource and check the report, without a broker or an API.

    from sentinel.testing.adapter import FakeHttp, make_resource, report_on, reported

    def test_a_cluster_waits_for_validation():
        report = report_on(dns, make_resource("Cluster"))

        assert report.status_of("Applied") == "False"

    def test_a_validated_cluster_gets_a_zone():
        http = FakeHttp()
        http.answer("PUT", "http://dns.internal/zones/c1", status=200)

        report = report_on(dns, make_resource("Cluster", id="c1", reports=[reported("validation")]), http=http)

        assert report.status_of("Available") == "True"

The task runs as in production: an exception, a timeout or an invalid result becomes a report. In an asynchronous
test use `await evaluate(...)`.

`EvaluationSeries` runs the task several times in a row, and carries over what the API would have stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

import msgspec
from msgspec import UNSET

from sentinel.adapter.declaration import Adapter
from sentinel.adapter.evaluation import evaluate_once
from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import KnownReport, Owner, Resource, ResourceCondition, known_report
from sentinel.core.fleet import reports as fleet_reports
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    HEALTH,
    AdapterCondition,
    AdapterStatus,
    ConditionStatus,
    Report,
    ReportedCondition,
)
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.json import Json
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.task_http import HttpClient
from sentinel.testing.clock import START
from sentinel.testing.task_http import FakeHttp, SentRequest

__all__ = [
    "START",
    "EvaluationSeries",
    "FakeHttp",
    "SentRequest",
    "evaluate",
    "make_event",
    "make_resource",
    "report_on",
    "reported",
]


def make_resource(
    kind: str,
    *,
    id: str = "00000000-0000-7000-8000-000000000001",  # noqa: A002  # the field's own name
    name: str = "one",
    generation: int = 1,
    spec: Json = None,
    labels: Mapping[str, str] | None = None,
    reports: Sequence[KnownReport] = (),
    conditions: Sequence[ResourceCondition] = (),
    owner: Owner | None = None,
    deleted_time: datetime | None = None,
) -> Resource:
    """Return a resource for a task; with `deleted_time` it is being deleted."""
    return Resource(
        id=id,
        kind=kind,
        href=f"{API_ROOT}/{kind.lower()}s/{id}",
        name=name,
        generation=generation,
        labels=labels or {},
        spec={} if spec is None else spec,
        owner=owner,
        deleted_time=deleted_time,
        conditions=tuple(conditions),
        reports=tuple(reports),
    )


def reported(
    adapter: str,
    available: ConditionStatus | str = ConditionStatus.TRUE,
    *,
    generation: int = 1,
    at: datetime = START,
    data: object = UNSET,
) -> KnownReport:
    """Return an earlier report of an adapter, for preconditions and for `context.previous`."""
    status = ConditionStatus(available)
    return KnownReport(
        adapter,
        generation,
        (
            ReportedCondition(APPLIED, ConditionStatus.TRUE),
            ReportedCondition(AVAILABLE, status),
            ReportedCondition(HEALTH, ConditionStatus.TRUE),
        ),
        at,
        UNSET if data is UNSET else msgspec.Raw(msgspec.json.encode(data)),
    )


def make_event(resource: Resource, data: Json = None) -> ReceivedEvent:
    """Return the event that a pulse would send for the resource."""
    attributes = {
        "specversion": "1.0",
        "id": "00000000-0000-7000-8000-00000000000e",
        "source": "hyperfleet-sentinel",
        "type": f"com.redhat.hyperfleet.{resource.kind.lower()}.reconcile",
        "subject": resource.id,
    }
    if data is None:
        data = {"resource_id": resource.id, "resource_type": resource.kind}
    return ReceivedEvent(
        attributes["id"], attributes["type"], attributes["source"], resource.id, "", data, attributes
    )


async def evaluate(
    adapter: Adapter,
    resource: Resource,
    *,
    http: HttpClient | None = None,
    event: ReceivedEvent | None = None,
    timeout: timedelta = timedelta(seconds=30),
    at: datetime = START,
) -> Report:
    """Run the adapter's task or finalizer for the resource and return the report.

    `at` is the time of the observation. Raises `LookupError` if the adapter does not handle the resource.
    """
    return await evaluate_once(
        adapter,
        resource,
        http=FakeHttp() if http is None else http,
        event=make_event(resource) if event is None else event,
        timeout=timeout,
        now=at,
    )


class EvaluateOptions(TypedDict, total=False):
    """The keyword arguments of `evaluate`."""

    http: HttpClient
    event: ReceivedEvent
    timeout: timedelta
    at: datetime


def report_on(adapter: Adapter, resource: Resource, **options: Unpack[EvaluateOptions]) -> Report:
    """Call `evaluate` from a synchronous test."""
    return asyncio.run(evaluate(adapter, resource, **options))


class EvaluationSeries:
    """Evaluations of one resource in a row, as pulses cause them.

        series = EvaluationSeries(dns, make_resource("Cluster", id="c1"), http=http)
        series.run()
        series.set_report(reported("validation"))
        report = series.run()

    Each report is admitted by the rules of the API. What the API would have stored is `context.previous` of the
    next evaluation: the report, or the work in progress.
    """

    def __init__(
        self,
        adapter: Adapter,
        resource: Resource,
        *,
        http: HttpClient | None = None,
        timeout: timedelta = timedelta(seconds=30),
        start: datetime = START,
        interval: timedelta = timedelta(seconds=10),
    ) -> None:
        """`start` is the time of the first evaluation, `interval` the time between two.

        Reports of the resource, the adapter's own included, are those before the first evaluation.
        """
        self.reports: list[Report] = []
        """The report of each evaluation."""
        self.results: list[ReportResult] = []
        """How the API would have responded to each."""
        self._adapter = adapter
        self._resource = resource
        self._http = FakeHttp() if http is None else http
        self._timeout = timeout
        self._now = start
        self._interval = interval
        own = resource.report_of(adapter.name)
        self._status = None if own is None else _status_of(own, start)

    @property
    def resource(self) -> Resource:
        """The resource as the next evaluation gets it."""
        others = [each for each in self._resource.reports if each.adapter != self._adapter.name]
        own = [] if self._status is None else [known_report(self._status)]
        return msgspec.structs.replace(self._resource, reports=(*others, *own))

    @property
    def previous(self) -> KnownReport | None:
        """What the next evaluation gets as `context.previous`."""
        return self.resource.newest_of(self._adapter.name)

    def set_report(self, report: KnownReport) -> None:
        """Set the latest report of another adapter, made with `reported`."""
        if report.adapter == self._adapter.name:
            raise ValueError(f"expected the report of another adapter, got one of {report.adapter} itself")
        others = [each for each in self._resource.reports if each.adapter != report.adapter]
        self._resource = msgspec.structs.replace(self._resource, reports=(*others, report))

    def change_spec(self, spec: Json) -> None:
        """Change the spec, which increments the generation."""
        self._resource = msgspec.structs.replace(
            self._resource, spec=spec, generation=self._resource.generation + 1
        )

    def delete(self) -> None:
        """Request the deletion of the resource, which increments the generation."""
        self._resource = msgspec.structs.replace(
            self._resource, deleted_time=self._now, generation=self._resource.generation + 1
        )

    async def evaluate(self) -> Report:
        """Run the task or finalizer once more and return its report.

        Raises `LookupError` if the adapter does not handle the resource.
        """
        report = await evaluate(self._adapter, self.resource, http=self._http, timeout=self._timeout, at=self._now)
        self.reports.append(report)
        self.results.append(self._send(report))
        self._now += self._interval
        return report

    def run(self) -> Report:
        """Call `evaluate` from a synchronous test."""
        return asyncio.run(self.evaluate())

    def _send(self, report: Report) -> ReportResult:
        result = fleet_reports.admit(
            report, generation=self._resource.generation, stored=self._status, now=self._now
        )
        if isinstance(result, fleet_reports.Rejected):
            text = "; ".join(f"{field}: {message}" for field, message in result.errors)
            return ReportResult(ReportOutcome.REFUSED, text)
        if isinstance(result, fleet_reports.Discarded):
            self._status = result.status or self._status
            return ReportResult(ReportOutcome.DISCARDED, result.reason)
        self._status = result.status
        return ReportResult(ReportOutcome.STORED)


def _status_of(known: KnownReport, default: datetime) -> AdapterStatus:
    """The stored status that a task would see as this report."""
    time = known.last_report_time or default
    return AdapterStatus(
        known.adapter,
        known.observed_generation,
        time,
        time,
        tuple(
            AdapterCondition(each.type, each.status, each.reason, each.message, time, time)
            for each in known.conditions
        ),
        data=known.data,
        in_progress=UNSET if known.in_progress is None else known.in_progress,
    )

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
from sentinel.core.adapter.resource import KnownReport, Owner, Resource, ResourceCondition
from sentinel.core.fleet.documents import APPLIED, AVAILABLE, HEALTH, ConditionStatus, Report, ReportedCondition
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient
from sentinel.testing.clock import START
from sentinel.testing.task_http import FakeHttp, SentRequest

__all__ = [
    "START",
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

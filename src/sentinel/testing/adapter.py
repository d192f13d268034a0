"""Run an adapter's task against a resource and look at the report, without a broker and without an API.

    from sentinel.testing.adapter import FakeHttp, make_resource, report_on, reported

    def test_a_cluster_waits_for_validation():
        report = report_on(dns, make_resource("Cluster"))

        assert report.status_of("Applied") == "False"

    def test_a_validated_cluster_gets_a_zone():
        http = FakeHttp()
        http.answer("PUT", "http://dns.internal/zones/c1", status=200)

        report = report_on(dns, make_resource("Cluster", id="c1", reports=[reported("validation")]), http=http)

        assert report.status_of("Available") == "True"

The task runs as it does in production: an exception, a timeout or a result that is none becomes a report here as
it does there. Inside a test that is asynchronous itself, `await evaluate(...)` does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from sentinel.adapter.declaration import Adapter
from sentinel.adapter.rehearsal import rehearse
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
    """A resource as a task is given it; `deleted_time` makes it one that is being deleted."""
    return Resource(
        id=id,
        kind=kind,
        name=name,
        generation=generation,
        href=f"{API_ROOT}/{kind.lower()}s/{id}",
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
    """What an adapter has said before: for preconditions, and for `context.previous`."""
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
    """The event that a pulse would have sent for a resource."""
    attributes = {
        "specversion": "1.0",
        "id": "00000000-0000-7000-8000-00000000000e",
        "source": "hyperfleet-sentinel",
        "type": f"com.redhat.hyperfleet.{resource.kind.lower()}.reconcile",
        "subject": resource.id,
    }
    said: Json = {"resource_id": resource.id, "resource_type": resource.kind} if data is None else data
    return ReceivedEvent(
        attributes["id"], attributes["type"], attributes["source"], resource.id, "", said, attributes
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
    """Runs the adapter's task, or finalizer, for this resource; the report that the API would get.

    `at` is the moment of the observation. Raises `LookupError` where the adapter does nothing for such a resource.
    """
    return await rehearse(
        adapter,
        resource,
        http=FakeHttp() if http is None else http,
        event=make_event(resource) if event is None else event,
        timeout=timeout,
        at=at,
    )


def report_on(
    adapter: Adapter,
    resource: Resource,
    *,
    http: HttpClient | None = None,
    event: ReceivedEvent | None = None,
    timeout: timedelta = timedelta(seconds=30),
    at: datetime = START,
) -> Report:
    """`evaluate`, for a test that is not asynchronous."""
    return asyncio.run(evaluate(adapter, resource, http=http, event=event, timeout=timeout, at=at))

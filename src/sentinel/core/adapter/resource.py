"""A resource as an adapter's task gets it: the spec, and the reports of all adapters.

It may come from our API or from the public HyperFleet API. Only the fields that both always have are required: id,
kind and generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.fleet.documents import (
    AVAILABLE,
    AdapterStatus,
    ConditionStatus,
    ReportedCondition,
    WorkInProgress,
)
from sentinel.core.json import DECODE_ERRORS, Json, Malformed
from sentinel.core.times import utc_or_none

T = TypeVar("T")

INTERRUPTED = "Interrupted"
"""The reason of a report on work that a shutdown cut off, and that will be resumed."""


class ResourceCondition(msgspec.Struct, frozen=True):
    """An aggregated condition of a resource, such as `Ready`."""

    type: str
    status: ConditionStatus
    observed_generation: int = 0
    reason: str = ""
    message: str = ""


class KnownReport(msgspec.Struct, frozen=True):
    """An adapter's latest report on a resource."""

    adapter: str
    observed_generation: int
    """The generation of the spec that was evaluated."""
    conditions: tuple[ReportedCondition, ...]
    last_report_time: datetime | None = None
    data: msgspec.Raw | UnsetType = UNSET
    in_progress: WorkInProgress | None = None
    """The work that the adapter reported as in progress after this report. Only our own API returns it."""

    @property
    def newest(self) -> KnownReport:
        """The work in progress as a report, if there is some; otherwise this report.

        Of the conditions of work in progress, only `Available` is kept.
        """
        work = self.in_progress
        if work is None:
            return self
        condition = ReportedCondition(AVAILABLE, ConditionStatus.UNKNOWN, work.reason, work.message)
        return KnownReport(self.adapter, work.observed_generation, (condition,), work.report_time, work.data)

    def status_of(self, condition: str) -> ConditionStatus | None:
        """Return the status of this condition, or None if it was not reported."""
        return next((each.status for each in self.conditions if each.type == condition), None)

    def reason_of(self, condition: str) -> str:
        """Return the reason of this condition, or "" if it was not reported."""
        return next((each.reason for each in self.conditions if each.type == condition), "")

    def read_data(self) -> Json:
        """Decode the data of the report; None if it has none."""
        decoded: Json = None if self.data is UNSET else msgspec.json.decode(self.data)
        return decoded


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a resource for one evaluation. The next evaluation gets a new one."""

    id: str
    kind: str
    generation: int
    """Increases by one when spec or labels change. The report is about this generation."""
    name: str = ""
    href: str = ""
    """The path of the resource, beginning with `/api/hyperfleet/v1`."""
    labels: Mapping[str, str] = {}
    spec: Json = None
    owner: Owner | None = None
    deleted_time: datetime | None = None
    """When its deletion was requested; None if it was not."""
    pulse_requested_time: datetime | None = None
    """When an evaluation was last requested."""
    last_progress_time: datetime | None = None
    """When a required adapter last became available."""
    conditions: tuple[ResourceCondition, ...] = ()
    """The aggregated conditions."""
    reports: tuple[KnownReport, ...] = ()
    """The latest report of each adapter, of any generation."""

    @property
    def is_deleting(self) -> bool:
        return self.deleted_time is not None

    def is_available(self, adapter: str) -> bool:
        """Whether this adapter has completed its work for the current generation."""
        return self.status_of(adapter) is ConditionStatus.TRUE

    def status_of(self, adapter: str, condition: str = AVAILABLE) -> ConditionStatus | None:
        """Return the status that this adapter reported for the current generation; None if it has not."""
        known = self.report_of(adapter)
        if known is None or known.observed_generation != self.generation:
            return None
        return known.status_of(condition)

    def report_of(self, adapter: str) -> KnownReport | None:
        """Return the latest report of this adapter, of any generation. Work in progress is not a report."""
        return next((each for each in self.reports if each.adapter == adapter), None)

    def newest_of(self, adapter: str) -> KnownReport | None:
        """Return the newest of this adapter's report and its work in progress, of any generation."""
        known = self.report_of(adapter)
        return None if known is None else known.newest

    def has_fresh_report(self, adapter: str, *, now: datetime, max_age: timedelta) -> bool:
        """Whether the last report of this adapter is younger than `max_age` and an evaluation would only repeat
        it. Work in progress counts as a report.

        False if the spec has changed since, if the last evaluation was interrupted, or if one was requested since:
        by a requested pulse, or by the progress of another adapter that this one may wait for.
        """
        known = self.newest_of(adapter)
        if known is None or known.observed_generation != self.generation:
            return False
        reported = utc_or_none(known.last_report_time)
        if reported is None or known.reason_of(AVAILABLE) == INTERRUPTED:
            return False
        requests = (utc_or_none(self.pulse_requested_time), utc_or_none(self.last_progress_time))
        if any(each is not None and each >= reported for each in requests):
            return False
        return timedelta(0) <= now - reported < max_age

    def condition(self, name: str) -> ResourceCondition | None:
        """Return the aggregated condition of this type."""
        return next((each for each in self.conditions if each.type == name), None)


class Owner(msgspec.Struct, frozen=True):
    """The resource that owns another."""

    id: str
    kind: str = ""
    href: str = ""


class ReadResource(msgspec.Struct, frozen=True):
    """A resource from a response."""

    resource: Resource
    has_reports: bool
    """Whether the response contained the reports of adapters."""


class StatusPage(msgspec.Struct, frozen=True):
    """One page of the adapters' reports."""

    items: tuple[KnownReport, ...]
    total: int = 0


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[ResourceCondition, ...] | None = None
    last_progress_time: datetime | None = None


class _Document(msgspec.Struct, frozen=True):
    id: str
    kind: str
    generation: int
    name: str = ""
    href: str = ""
    labels: dict[str, str] | None = None
    spec: Any = None
    owner_references: Owner | None = None
    deleted_time: datetime | None = None
    pulse_requested_time: datetime | None = None
    status: _Status | None = None
    statuses: tuple[KnownReport, ...] | None = None


_documents = msgspec.json.Decoder(_Document)
_pages = msgspec.json.Decoder(StatusPage)


def read_document(body: bytes, *, href: str = "") -> ReadResource:
    """Read a resource, with its reports if they are included. `href` is for servers that do not return it.

    Raises `Malformed` if the response is not a resource.
    """
    document = _decode(_documents, body)
    if not document.id or not document.kind or document.generation < 1:
        raise Malformed("expected a resource with an id, a kind and a generation")
    status = document.status or _Status()
    resource = Resource(
        id=document.id,
        kind=document.kind,
        generation=document.generation,
        name=document.name,
        href=document.href or href,
        labels=document.labels or {},
        spec=document.spec,
        owner=document.owner_references,
        deleted_time=document.deleted_time,
        pulse_requested_time=document.pulse_requested_time,
        last_progress_time=status.last_progress_time,
        conditions=status.conditions or (),
        reports=document.statuses or (),
    )
    return ReadResource(resource, document.statuses is not None)


def read_statuses(body: bytes) -> StatusPage:
    """Read a page of reports from a response. Raises `Malformed` if it is not one."""
    return _decode(_pages, body)


def with_reports(resource: Resource, reports: Sequence[KnownReport]) -> Resource:
    """Return the resource with these reports."""
    return msgspec.structs.replace(resource, reports=tuple(reports))


def known_report(status: AdapterStatus) -> KnownReport:
    """Return the stored status of an adapter as a task gets it."""
    return KnownReport(
        status.adapter,
        status.observed_generation,
        tuple(ReportedCondition(each.type, each.status, each.reason, each.message) for each in status.conditions),
        status.last_report_time,
        status.data,
        status.in_progress or None,
    )


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except DECODE_ERRORS as error:
        raise Malformed(str(error)) from error

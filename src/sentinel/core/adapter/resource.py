"""A resource as an adapter's task sees it: what was asked for, and what the adapters have said so far.

It is read from whatever HyperFleet API there is, ours or the public one, so only what every one of them has is
required: an id, a kind and a generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.fleet.documents import AVAILABLE, ConditionStatus, ReportedCondition
from sentinel.core.json import DECODE_ERRORS, Json, Malformed
from sentinel.core.times import utc_or_none

T = TypeVar("T")

INTERRUPTED = "Interrupted"
"""The reason of a report on work that was cut off because the adapter ended, and will be taken up again."""


class Owner(msgspec.Struct, frozen=True):
    """The resource that another one belongs to."""

    id: str
    kind: str = ""
    href: str = ""


class ResourceCondition(msgspec.Struct, frozen=True):
    """What holds of a resource as a whole, such as `Ready`."""

    type: str
    status: ConditionStatus
    observed_generation: int = 0
    reason: str = ""
    message: str = ""


class KnownReport(msgspec.Struct, frozen=True):
    """An adapter's latest report on a resource."""

    adapter: str
    observed_generation: int
    """The generation of the spec that it looked at."""
    conditions: tuple[ReportedCondition, ...]
    last_report_time: datetime | None = None
    data: msgspec.Raw | UnsetType = UNSET

    def status_of(self, condition: str) -> ConditionStatus | None:
        """The status of this condition, or None where it was not reported."""
        return next((each.status for each in self.conditions if each.type == condition), None)

    def reason_of(self, condition: str) -> str:
        """The reason that was reported with this condition."""
        return next((each.reason for each in self.conditions if each.type == condition), "")

    def read_data(self) -> Json:
        """The data that came with the report; None where there was none."""
        decoded: Json = None if self.data is UNSET else msgspec.json.decode(self.data)
        return decoded


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is given. It is a picture of one moment; the next evaluation gets a new one."""

    id: str
    kind: str
    generation: int
    """Rises by one whenever spec or labels change; the report will be about this one."""
    name: str = ""
    href: str = ""
    """Its path, from `/api/hyperfleet/v1` on."""
    labels: Mapping[str, str] = {}
    spec: Json = None
    """What was asked for."""
    owner: Owner | None = None
    deleted_time: datetime | None = None
    """When its deletion was asked for; None for a resource that is to stay."""
    pulse_requested_time: datetime | None = None
    """When somebody last asked for a look at it."""
    last_progress_time: datetime | None = None
    """When an adapter that it needs last became available."""
    conditions: tuple[ResourceCondition, ...] = ()
    """The aggregated ones."""
    reports: tuple[KnownReport, ...] = ()
    """The latest of each adapter, whichever generation it is about."""

    @property
    def is_deleting(self) -> bool:
        return self.deleted_time is not None

    def is_available(self, adapter: str) -> bool:
        """Whether this adapter has reported that its work for the resource's current generation is done."""
        return self.status_of(adapter) is ConditionStatus.TRUE

    def status_of(self, adapter: str, condition: str = AVAILABLE) -> ConditionStatus | None:
        """What this adapter says of the resource's current generation; None where it has said nothing yet."""
        known = self.report_of(adapter)
        if known is None or known.observed_generation != self.generation:
            return None
        return known.status_of(condition)

    def report_of(self, adapter: str) -> KnownReport | None:
        """This adapter's latest report, whichever generation it is about."""
        return next((each for each in self.reports if each.adapter == adapter), None)

    def has_fresh_report(self, adapter: str, *, now: datetime, max_age: timedelta) -> bool:
        """Whether a look by this adapter would only repeat its last one, which is younger than `max_age`.

        Not where the spec has changed since, where the last look was cut off, or where somebody has asked for one
        since: a person, or the progress of another adapter that this one may have waited for.
        """
        known = self.report_of(adapter)
        if known is None or known.observed_generation != self.generation:
            return False
        reported = utc_or_none(known.last_report_time)
        if reported is None or known.reason_of(AVAILABLE) == INTERRUPTED:
            return False
        asked = (utc_or_none(self.pulse_requested_time), utc_or_none(self.last_progress_time))
        if any(each is not None and each >= reported for each in asked):
            return False
        return timedelta(0) <= now - reported < max_age

    def condition(self, name: str) -> ResourceCondition | None:
        """The aggregated condition of this type."""
        return next((each for each in self.conditions if each.type == name), None)


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


_documents = msgspec.json.Decoder(_Document)
_pages = msgspec.json.Decoder(StatusPage)


def read_document(body: bytes, *, href: str = "") -> Resource:
    """A resource without its reports, from the API's answer; `href` is for servers that do not say it.

    Raises `Malformed` where the answer is none.
    """
    document = _decode(_documents, body)
    if not document.id or not document.kind or document.generation < 1:
        raise Malformed("expected a resource with an id, a kind and a generation")
    status = document.status or _Status()
    return Resource(
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
    )


def read_statuses(body: bytes) -> StatusPage:
    """A page of reports, from the API's answer; raises `Malformed` where it is none."""
    return _decode(_pages, body)


def with_reports(resource: Resource, reports: Sequence[KnownReport]) -> Resource:
    """The same resource, with what the adapters have said."""
    return msgspec.structs.replace(resource, reports=tuple(reports))


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except DECODE_ERRORS as error:
        raise Malformed(str(error)) from error

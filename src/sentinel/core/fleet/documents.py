"""Resources, conditions and reports of the fleet API: frozen structs that define the wire format.

A resource is one document. It is encoded when it is written, stored as bytes and served as those bytes, so a list
joins them without decoding. `core.pulse.observation` reads the few fields that a decision needs from the documents
of any server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


AVAILABLE = "Available"
READY = "Ready"
APPLIED = "Applied"
HEALTH = "Health"
FINALIZED = "Finalized"
MANDATORY = (APPLIED, AVAILABLE, HEALTH)
"""The conditions that every report must have."""


class Condition(msgspec.Struct, frozen=True):
    """A condition of a resource, aggregated from the reports of its adapters."""

    type: str
    status: ConditionStatus
    observed_generation: int
    created_time: datetime
    last_updated_time: datetime
    last_transition_time: datetime
    reason: str = ""
    message: str = ""

    @property
    def is_true(self) -> bool:
        return self.status is ConditionStatus.TRUE


class ReportedCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition of an adapter's report, as sent."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter's report on a resource after one evaluation."""

    adapter: str
    observed_generation: int
    """The generation of the spec that was evaluated."""
    observed_time: Annotated[datetime, Meta(tz=True)]
    """The time of the evaluation, by the clock of the adapter."""
    conditions: tuple[ReportedCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET

    def status_of(self, condition: str) -> ConditionStatus | None:
        """Return the status of this condition, or None if the report does not have it."""
        return next((each.status for each in self.conditions if each.type == condition), None)


class AdapterCondition(msgspec.Struct, frozen=True):
    """One condition of an adapter's latest report, with the time of its last transition."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    created_time: datetime
    last_transition_time: datetime


class WorkInProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter's latest report with `Available=Unknown`. It is shown beside the report that counts."""

    observed_generation: int
    report_time: datetime
    """The report's `observed_time`."""
    reason: str
    message: str
    data: msgspec.Raw | UnsetType = UNSET


class AdapterStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter's latest report on a resource, as stored and served."""

    adapter: str
    observed_generation: int
    created_time: datetime
    """When this adapter first reported on the resource."""
    last_report_time: datetime
    """The report's `observed_time`."""
    conditions: tuple[AdapterCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET
    in_progress: WorkInProgress | UnsetType = UNSET
    """The latest `Unknown`, if it is newer than this report. Aggregation ignores it."""

    @property
    def newest(self) -> tuple[int, datetime]:
        """Generation and time of the newest of the report and the work in progress."""
        work = self.in_progress
        if isinstance(work, WorkInProgress):
            return work.observed_generation, work.report_time
        return self.observed_generation, self.last_report_time

    def condition(self, name: str) -> AdapterCondition | None:
        """Return the condition of this type, or None if it was not reported."""
        return next((each for each in self.conditions if each.type == name), None)

    def status_of(self, condition: str) -> ConditionStatus | None:
        """Return the status of this condition, or None if it was not reported."""
        found = self.condition(condition)
        return None if found is None else found.status


class ResourceStatus(msgspec.Struct, frozen=True):
    """The `status` of a resource: the aggregated conditions, and the flat fields that a pulse reads."""

    phase: Phase
    observed_generation: int
    """The lowest generation that every required adapter has reported; 0 while one is missing."""
    last_updated_time: datetime
    last_transition_time: datetime
    conditions: tuple[Condition, ...]
    last_progress_time: datetime | UnsetType = UNSET
    """The latest time at which the `Available` of a required adapter became True; absent until one has."""
    progress_count: int | UnsetType = UNSET
    """How many times that has happened. It tells apart two events with equal times: the clocks of adapters differ,
    and some tick in seconds."""

    def condition(self, name: str) -> Condition | None:
        """Return the condition of this type, or None."""
        return next((each for each in self.conditions if each.type == name), None)


class Phase(StrEnum):
    """The status of `Ready` as a flat field."""

    READY = "Ready"
    NOT_READY = "NotReady"


class Metadata(msgspec.Struct, frozen=True):
    """Name and labels again, for templates that expect the shape of Kubernetes objects."""

    name: str
    labels: Mapping[str, str]


class Owner(msgspec.Struct, frozen=True):
    """A reference to the resource that owns another."""

    id: str
    kind: str
    href: str


class ResourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A whole resource, as clients get it."""

    id: str
    kind: str
    href: str
    name: str
    labels: Mapping[str, str]
    spec: msgspec.Raw
    """Encoded with sorted keys, so two specs are equal if and only if their bytes are."""
    generation: int
    created_time: datetime
    updated_time: datetime
    """When spec or labels last changed, or the resource was deleted. Reports do not change it."""
    created_by: str
    updated_by: str
    deleted_time: datetime | UnsetType = UNSET
    owner_references: Owner | UnsetType = UNSET
    metadata: Metadata
    owner_resource: Owner | UnsetType = msgspec.field(name="ownerResource", default=UNSET)
    paused: bool | UnsetType = UNSET
    pulse_requested_time: datetime | UnsetType = UNSET
    status: ResourceStatus

    @property
    def is_deleting(self) -> bool:
        return self.deleted_time is not UNSET


class KindRules(msgspec.Struct, frozen=True):
    """A kind of resource that the API serves."""

    plural: str
    kind: str
    parent: str = ""
    """The plural of the kind that this kind is nested under; empty if none."""
    required_adapters: tuple[str, ...] = ()
    """The adapters whose reports determine `Available` and `Ready`."""
    available: str = ""
    """The CEL expression that determines `Available`; empty: the built-in rule."""
    ready: str = ""
    """The CEL expression that determines `Ready`; empty: the built-in rule."""


class DiscardedReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A discarded report, kept for a while to explain why it had no effect."""

    adapter: str
    reason: DiscardReason
    received_time: datetime
    observed_generation: int
    observed_time: datetime
    conditions: tuple[ReportedCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


class GenerationRecord(msgspec.Struct, frozen=True):
    """The spec and labels of a resource at one generation, and who wrote them."""

    generation: int
    time: datetime
    actor: str
    change: ResourceOperation
    """`create`, `patch` or `delete`."""
    labels: Mapping[str, str]
    spec: msgspec.Raw


class ResourceOperation(StrEnum):
    """An operation on a resource."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"
    """The deletion begins."""
    REMOVE = "remove"
    """The deletion ends: the resource is gone."""
    FORCE_DELETE = "force-delete"
    PULSE = "pulse"
    PAUSE = "pause"
    RESUME = "resume"
    REPORT = "report"


class DiscardReason(StrEnum):
    """Why a valid report was not stored."""

    FUTURE_GENERATION = "future_generation"
    STALE_GENERATION = "stale_generation"
    STALE_TIME = "stale_time"
    UNKNOWN = "unknown"


_document = msgspec.json.Decoder(ResourceDocument)
_statuses = msgspec.json.Decoder(tuple[AdapterStatus, ...])
_encoder = msgspec.json.Encoder()


def encode_document(document: ResourceDocument) -> bytes:
    """Return the bytes that are stored and served."""
    return _encoder.encode(document)


def decode_document(document: bytes) -> ResourceDocument:
    return _document.decode(document)


def encode_statuses(statuses: Sequence[AdapterStatus]) -> bytes:
    """Return the adapter statuses of a resource as they are stored beside it."""
    return _encoder.encode(statuses)


def decode_statuses(statuses: bytes) -> tuple[AdapterStatus, ...]:
    return _statuses.decode(statuses)

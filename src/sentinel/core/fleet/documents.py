"""Resources, conditions and reports as the fleet API keeps them: frozen structs that are the wire contract.

A resource is one document. It is encoded when it is written, stored as bytes, and handed out as those bytes: a
list joins them and decodes nothing. `model` reads the documents of any server, ours or another's, as far as a
decision needs; here they are written, whole.
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
"""The conditions without which a report is none."""


class Condition(msgspec.Struct, frozen=True):
    """What holds of a resource as a whole, aggregated from its adapters' reports."""

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
    """One condition of an adapter's report, as it was sent."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an adapter says of a resource after one evaluation."""

    adapter: str
    observed_generation: int
    """The generation of the spec that it looked at."""
    observed_time: Annotated[datetime, Meta(tz=True)]
    """When it looked, by its own clock."""
    conditions: tuple[ReportedCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET

    def status_of(self, condition: str) -> ConditionStatus | None:
        """The status of this condition, or None where the report does not have it."""
        return next((each.status for each in self.conditions if each.type == condition), None)


class AdapterCondition(msgspec.Struct, frozen=True):
    """One condition of an adapter's latest report, with the moment it last changed."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    created_time: datetime
    last_transition_time: datetime


class AdapterStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter's latest report on a resource, as it is kept and shown."""

    adapter: str
    observed_generation: int
    created_time: datetime
    """When this adapter first reported on the resource."""
    last_report_time: datetime
    """The report's `observed_time`."""
    conditions: tuple[AdapterCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET

    def condition(self, name: str) -> AdapterCondition | None:
        """The condition of this type, or None where it was not reported."""
        return next((each for each in self.conditions if each.type == name), None)

    def status_of(self, condition: str) -> ConditionStatus | None:
        """The status of this condition, or None where it was not reported."""
        found = self.condition(condition)
        return None if found is None else found.status


class Phase(StrEnum):
    """The flat reading of `Ready`."""

    READY = "Ready"
    NOT_READY = "NotReady"


class ResourceStatus(msgspec.Struct, frozen=True):
    """`status` of a resource: the aggregated conditions, and the flat fields that a pulse reads."""

    phase: Phase
    observed_generation: int
    """The lowest generation that every required adapter has reported; 0 while one is missing."""
    last_updated_time: datetime
    last_transition_time: datetime
    conditions: tuple[Condition, ...]
    last_progress_time: datetime | UnsetType = UNSET
    """The latest moment at which a required adapter's `Available` turned True; absent until one has."""
    progress_count: int | UnsetType = UNSET
    """How often that has happened. It tells two such moments apart where clocks do not: they differ between
    adapters, and some tick in seconds."""

    def condition(self, name: str) -> Condition | None:
        """The condition of this type, or None."""
        return next((each for each in self.conditions if each.type == name), None)


class Owner(msgspec.Struct, frozen=True):
    """A reference to the resource that another one belongs to."""

    id: str
    kind: str
    href: str


class Metadata(msgspec.Struct, frozen=True):
    """Name and labels once more, where templates written for Kubernetes' shape look for them."""

    name: str
    labels: Mapping[str, str]


class ResourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A resource, whole, as clients get it."""

    id: str
    kind: str
    href: str
    name: str
    labels: Mapping[str, str]
    spec: msgspec.Raw
    """Encoded with sorted keys, so that two specs are equal exactly when their bytes are."""
    generation: int
    created_time: datetime
    updated_time: datetime
    """When spec or labels last changed, or the resource was deleted; reports do not move it."""
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
    """The plural of the kind that it is nested under; empty for none."""
    required_adapters: tuple[str, ...] = ()
    """Whose reports decide on `Available` and `Ready`."""


class DiscardReason(StrEnum):
    """Why a well-formed report was not taken."""

    FUTURE_GENERATION = "future_generation"
    STALE_GENERATION = "stale_generation"
    STALE_TIME = "stale_time"
    UNKNOWN = "unknown"


class DiscardedReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report that was discarded, kept for a while for those who wonder where it went."""

    adapter: str
    reason: DiscardReason
    received_time: datetime
    observed_generation: int
    observed_time: datetime
    conditions: tuple[ReportedCondition, ...]
    data: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


class ResourceOperation(StrEnum):
    """What was done to a resource."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"
    """It was sent on its way."""
    REMOVE = "remove"
    """The end of a deletion."""
    FORCE_DELETE = "force-delete"
    PULSE = "pulse"
    PAUSE = "pause"
    RESUME = "resume"
    REPORT = "report"


class GenerationRecord(msgspec.Struct, frozen=True):
    """What a resource looked like at one of its generations, and who made it so."""

    generation: int
    time: datetime
    actor: str
    change: ResourceOperation
    """`create`, `patch` or `delete`."""
    labels: Mapping[str, str]
    spec: msgspec.Raw


_document = msgspec.json.Decoder(ResourceDocument)
_statuses = msgspec.json.Decoder(tuple[AdapterStatus, ...])
_encoder = msgspec.json.Encoder()


def encode_document(document: ResourceDocument) -> bytes:
    """The bytes that are stored and served."""
    return _encoder.encode(document)


def decode_document(document: bytes) -> ResourceDocument:
    """What was encoded by `encode_document`."""
    return _document.decode(document)


def encode_statuses(statuses: Sequence[AdapterStatus]) -> bytes:
    """The reports of a resource as they are stored beside it."""
    return _encoder.encode(statuses)


def decode_statuses(statuses: bytes) -> tuple[AdapterStatus, ...]:
    """What was encoded by `encode_statuses`."""
    return _statuses.decode(statuses)

"""Resources as a decision reads them.

Servers write the status of a resource in two shapes: as flat fields (`status.phase`, `status.observed_generation`,
`status.last_updated_time`, in snake or camel case) or as a list of conditions. This module reads both into an
`Observation`. Only the fields that a decision needs are decoded. The rest of the document stays encoded until an
event is composed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json, Malformed
from sentinel.core.times import to_utc, utc_or_none

T = TypeVar("T")

NO_LABELS: dict[str, str] = {}

_NULL = msgspec.Raw(b"null")


class Observation(msgspec.Struct, frozen=True, gc=False):
    """The fields of a resource that a decision reads."""

    id: str
    kind: str
    generation: int
    observed_generation: int
    is_ready: bool
    last_updated_time: datetime | None
    """When the adapters last checked the resource. None if the server wrote no time, "" or Go's zero time."""
    labels: dict[str, str]
    is_paused: bool = False
    pulse_requested_time: datetime | None = None
    last_progress_time: datetime | None = None
    """When an adapter last completed its part. None if none has, or if the server does not provide it."""
    progress_count: int = 0
    """How many times an adapter has completed its part. It tells apart two completions with equal times."""

    @property
    def is_progress_open(self) -> bool:
        """Whether an adapter has completed its part, and some adapter may not have checked the resource since.

        Both times come from the adapters, so our clock and `first_seen` play no role. The report that completed an
        adapter's part may be the oldest of all reports: the others came a moment later and did not see it yet. So
        equal times are an answer only if the resource is ready.
        """
        progress, updated = self.last_progress_time, self.last_updated_time
        if progress is None:
            return False
        return updated is None or progress > updated or (progress == updated and not self.is_ready)

    @property
    def progress_key(self) -> tuple[datetime, int] | None:
        """Identifies the last progress of this resource; None if there was none."""
        if self.last_progress_time is None:
            return None
        return self.last_progress_time, self.progress_count


class FetchedResource(msgspec.Struct, frozen=True, gc=False):
    """A resource as fetched: its observation, and the whole document, still encoded."""

    observation: Observation
    source: msgspec.Raw | Sequence[msgspec.Raw]
    """The document, or all documents of its page. A page is split only when one of them is read, which is rare."""
    index: int = 0
    """The position of the document in `source`."""

    @property
    def document(self) -> msgspec.Raw:
        return self.source if isinstance(self.source, msgspec.Raw) else self.source[self.index]

    def decode(self) -> Json:
        """Decode the whole document.

        Raises `Malformed` if a part that no decision reads is not valid JSON. That is not noticed earlier.
        """
        try:
            decoded: Json = msgspec.json.decode(self.document)
        except DECODE_ERRORS as error:
            raise Malformed(str(error)) from error
        return decoded


class MalformedItem(msgspec.Struct, frozen=True):
    """An item of the fleet that is not a resource, or a resource that cannot be decoded."""

    id: str | None
    """None if it cannot be read."""
    message: str
    """What is wrong with it, without its values."""
    position: str = ""
    """Where it was found, such as `page 1, items[3]`. It changes when other resources come and go."""

    def __str__(self) -> str:
        name = self.id if self.position == "" else f"{self.id} ({self.position})"
        return f"{self.position if self.id is None else name}: {self.message}"


class WireCondition(msgspec.Struct, gc=False):
    """One entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_updated_time: datetime | None = None


class FlatStatus(msgspec.Struct, gc=False):
    """The flat fields of `status`, in snake or camel case."""

    phase: str | None = None
    observed_generation: int | None = None
    last_updated_time: datetime | None = None
    last_progress_time: datetime | None = None
    progress_count: int | None = None
    observed_generation_camel: int | None = msgspec.field(default=None, name="observedGeneration")
    last_updated_time_camel: datetime | None = msgspec.field(default=None, name="lastUpdatedTime")
    last_transition_time_camel: datetime | None = msgspec.field(default=None, name="lastTransitionTime")


class _WireIdentity(msgspec.Struct):
    id: str | int | None = None


class WireMetadata(msgspec.Struct, gc=False):
    """`metadata`."""

    labels: dict[str, str] | None = None


class WireHead(msgspec.Struct, gc=False):
    """The members of a document that are decoded at once, whatever its shape."""

    id: str
    kind: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    paused: bool | None = None
    pulse_requested_time: datetime | None = None


class WireStatus(FlatStatus, gc=False):
    """`status`, for documents that are probably plain."""

    conditions: msgspec.Raw = _NULL
    """A list of `WireCondition`, decoded only if a flat field is missing."""


class WireResource(WireHead, gc=False):
    """The members of a document that a decision needs. All others are skipped without decoding."""

    metadata: msgspec.Raw = _NULL
    """A `WireMetadata`, decoded only if there are no top-level labels."""
    status: WireStatus | None = None


class CompleteStatus(FlatStatus, gc=False):
    """`status` with its conditions decoded."""

    conditions: list[WireCondition] | None = None


class CompleteResource(WireHead, gc=False):
    """The same members as `WireResource`, all decoded at once: half the cost for documents that are not plain."""

    metadata: WireMetadata | None = None
    status: CompleteStatus | None = None


PLAIN_FIELDS = (
    "id",
    "kind",
    "generation",
    "labels",
    "paused",
    "pulse_requested_time",
    "status.phase",
    "status.observed_generation",
    "status.last_updated_time",
    "status.last_progress_time",
    "status.progress_count",
)
"""The paths read from a plain document; see `plain_observation`. A server with `fields=` returns only these."""

FIELDS = (
    *PLAIN_FIELDS,
    "metadata.labels",
    "status.observedGeneration",
    "status.lastUpdatedTime",
    "status.lastTransitionTime",
    "status.conditions",
)
"""The paths read from any document."""

_document = msgspec.json.Decoder(WireResource)
_identity = msgspec.json.Decoder(_WireIdentity)
_metadata = msgspec.json.Decoder(WireMetadata | None)
_conditions = msgspec.json.Decoder(list[WireCondition] | None)

_TIMES = (
    "last_updated_time",
    "lastUpdatedTime",
    "lastTransitionTime",
    "pulse_requested_time",
    "last_progress_time",
)
_READY = "ready"
_ROOT_TYPES = frozenset({"Ready", "Reconciled", "Available", "LastKnownReconciled"})
"""Conditions that the server aggregates. All others come from the reports of adapters."""
_NO_STATUS = FlatStatus()
_NO_CONDITION = WireCondition()


def read_resource(document: msgspec.Raw) -> FetchedResource:
    """Read one document. Raises `Malformed` if it is not a resource."""
    return FetchedResource(observe(document), document)


def observe(document: msgspec.Raw | bytes) -> Observation:
    """Read the observation from an encoded document. Raises `Malformed` if it is not a resource."""
    return observation(_decode(_document, document))


def malformed_item(document: msgspec.Raw | bytes, problem: Malformed, position: str = "") -> MalformedItem:
    """Describe a document that is not a resource, with its id if that can be read."""
    try:
        found = _identity.decode(document).id
    except DECODE_ERRORS:
        found = None
    return MalformedItem(None if found in (None, "") else str(found), str(problem), position)


def plain_observation(document: WireResource | CompleteResource) -> Observation | None:
    """Return the observation of a plain document, one with labels and a flat status; None for any other.

    No other member of a plain document matters. If all documents of a list are plain, only `PLAIN_FIELDS` need to
    be requested.
    """
    labels, status = document.labels, document.status
    if labels is None or status is None:
        return None
    return _flat_observation(document, labels, status)


def observation(document: WireResource) -> Observation:
    """Return the observation of a decoded document, whichever shape it has."""
    labels = document.labels
    if labels is None:
        labels = _labels(_decode(_metadata, document.metadata, "metadata: "))
    status = document.status
    if status is None:
        return _observation(document, labels, _NO_STATUS, None)
    flat = _flat_observation(document, labels, status)
    if flat is not None:
        return flat
    conditions = _decode(_conditions, status.conditions, "status.conditions: ")
    return _observation(document, labels, status, conditions)


def complete_observation(document: CompleteResource) -> Observation:
    """Return the same observation as `observation`, without decoding anything more."""
    labels, status = document.labels, document.status
    if labels is None:
        labels = _labels(document.metadata)
    if status is None:
        return _observation(document, labels, _NO_STATUS, None)
    return _flat_observation(document, labels, status) or _observation(document, labels, status, status.conditions)


def _labels(metadata: WireMetadata | None) -> dict[str, str]:
    if metadata is None or metadata.labels is None:
        return NO_LABELS
    return metadata.labels


def _flat_observation(document: WireHead, labels: dict[str, str], status: FlatStatus) -> Observation | None:
    """Return the observation if the flat fields say everything. This runs for every resource of most fleets."""
    phase, observed, updated = status.phase, status.observed_generation, status.last_updated_time
    if phase is None or observed is None or updated is None or updated.year == 1 or not document.id:
        return None
    requested, progress = document.pulse_requested_time, status.last_progress_time
    return Observation(
        document.id,
        document.kind or "",
        document.generation or 0,
        observed,
        phase.lower() == _READY,
        updated if updated.tzinfo is UTC else to_utc(updated),
        labels,
        document.paused is True,
        None if requested is None else utc_or_none(requested),
        None if progress is None else utc_or_none(progress),
        status.progress_count or 0,
    )


def _observation(
    document: WireHead, labels: dict[str, str], status: FlatStatus, conditions: list[WireCondition] | None
) -> Observation:
    if not document.id:
        raise Malformed("id: expected a non-empty string")
    generation = document.generation or 0
    ready, available = _ready_and_available(conditions) if conditions else (_NO_CONDITION, _NO_CONDITION)
    is_true = ready.status.lower() == "true"
    phase, observed = status.phase, status.observed_generation
    if observed is None:
        observed = status.observed_generation_camel
    if observed is None:
        # The public API stamps Ready with the current generation at every write, so it does not tell what the
        # adapters have observed. Available has the generation that they reported, but only once one has: the
        # public API creates both with generation 1.
        if is_true:
            observed = generation
        elif available.status.lower() == "true" or _has_report(conditions):
            observed = available.observed_generation or 0
        else:
            observed = 0
    requested, progress = document.pulse_requested_time, status.last_progress_time
    return Observation(
        document.id,
        document.kind or "",
        generation,
        observed,
        is_true if phase is None else phase.lower() == _READY,
        _first_time(
            status.last_updated_time,
            status.last_updated_time_camel,
            ready.last_updated_time,
            status.last_transition_time_camel,
        ),
        labels,
        document.paused is True,
        None if requested is None else utc_or_none(requested),
        None if progress is None else utc_or_none(progress),
        status.progress_count or 0,
    )


def _ready_and_available(conditions: list[WireCondition]) -> tuple[WireCondition, WireCondition]:
    """Return Ready (or Reconciled) and Available (or LastKnownReconciled); our names win over the public ones."""
    ready = reconciled = available = last_known = _NO_CONDITION
    for condition in conditions:
        match condition.type:
            case "Ready":
                ready = condition
            case "Reconciled":
                reconciled = condition
            case "Available":
                available = condition
            case "LastKnownReconciled":
                last_known = condition
    return (
        reconciled if ready is _NO_CONDITION else ready,
        last_known if available is _NO_CONDITION else available,
    )


def _has_report(conditions: list[WireCondition] | None) -> bool:
    """Whether an adapter has reported: a root condition is True, or there is a condition besides them."""
    for each in conditions or ():
        if each.type not in _ROOT_TYPES or each.status.lower() == "true":
            return True
    return False


def _first_time(*times: datetime | None) -> datetime | None:
    """Return the first time that is set."""
    for time in times:
        if time is not None and time.year != 1:
            return time if time.tzinfo is UTC else to_utc(time)
    return None


def _decode(decoder: msgspec.json.Decoder[T], encoded: msgspec.Raw | bytes, where: str = "") -> T:
    try:
        return decoder.decode(encoded)
    except DECODE_ERRORS:
        # Some servers write an unset time as "". Try again without those.
        try:
            cleaned = _without_empty_times(msgspec.json.decode(encoded))
            return decoder.decode(msgspec.json.encode(cleaned))
        except DECODE_ERRORS as error:
            raise Malformed(f"{where}{error}") from error


def _without_empty_times(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_empty_times(item) for item in value]
    if isinstance(value, dict):
        kept = {name: member for name, member in value.items() if name not in _TIMES or member != ""}
        return kept | {"status": _without_empty_times(kept["status"])} if "status" in kept else kept
    return value

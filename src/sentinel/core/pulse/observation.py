"""Resources as the pulse sees them.

Two shapes of resource are in the wild: one with flat status fields (`status.phase`,
`status.observed_generation`, `status.last_updated_time`, in snake or camel case) and one with a list of
conditions. Both are read here, once, into an `Observation`, so that nothing downstream knows there were two.
Only what a decision needs is decoded; the rest of the document stays raw bytes until somebody publishes it.
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

NOTHING = msgspec.Raw(b"null")


class Observation(msgspec.Struct, frozen=True, gc=False):
    """What a decision needs to know of a resource."""

    id: str
    kind: str
    generation: int
    observed_generation: int
    is_ready: bool
    last_updated_time: datetime | None
    """When the adapters last looked; None where nobody has (absent, empty, or Go's zero time)."""
    labels: dict[str, str]
    is_paused: bool = False
    """Somebody wants no events for it, whatever happens to it."""
    pulse_requested_time: datetime | None = None
    """When somebody last asked for an event; None where nobody has."""
    last_progress_time: datetime | None = None
    """When an adapter last completed its part; None where none has, or the server does not say."""
    progress_count: int = 0
    """How often one has, as far as the server says; it tells two completions apart that bear the same time."""


class FetchedResource(msgspec.Struct, frozen=True, gc=False):
    """A resource as fetched: what the decision reads, and the whole document, still encoded."""

    observation: Observation
    source: msgspec.Raw | Sequence[msgspec.Raw]
    """The document, or all that came with it: few are ever looked at, so a page splits itself when asked."""
    index: int = 0
    """Which document of several."""

    @property
    def document(self) -> msgspec.Raw:
        """The whole document, encoded."""
        return self.source if isinstance(self.source, msgspec.Raw) else self.source[self.index]

    def decode(self) -> Json:
        """The whole document; paid for only by those that are published.

        Raises `Malformed` where a part that no decision reads is not valid JSON: that is not found out before.
        """
        try:
            decoded: Json = msgspec.json.decode(self.document)
        except DECODE_ERRORS as error:
            raise Malformed(str(error)) from error
        return decoded


class WireCondition(msgspec.Struct, gc=False):
    """One entry of `status.conditions`, on the wire."""

    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_updated_time: datetime | None = None


class WireStatus(msgspec.Struct, gc=False):
    """`status`, on the wire: flat fields in either case, or conditions, or both."""

    phase: str | None = None
    observed_generation: int | None = None
    last_updated_time: datetime | None = None
    last_progress_time: datetime | None = None
    progress_count: int | None = None
    conditions: msgspec.Raw = NOTHING
    """A list of `WireCondition`, decoded only where the flat fields leave something open."""
    observed_generation_camel: int | None = msgspec.field(default=None, name="observedGeneration")
    last_updated_time_camel: datetime | None = msgspec.field(default=None, name="lastUpdatedTime")
    last_transition_time_camel: datetime | None = msgspec.field(default=None, name="lastTransitionTime")


class WireMetadata(msgspec.Struct, gc=False):
    """`metadata`, on the wire."""

    labels: dict[str, str] | None = None


class WireResource(msgspec.Struct, gc=False):
    """What a decision needs of a resource, on the wire; every other member is skipped, not decoded."""

    id: str
    kind: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    metadata: msgspec.Raw = NOTHING
    """A `WireMetadata`, decoded only where there are no labels beside it."""
    paused: bool | None = None
    pulse_requested_time: datetime | None = None
    status: WireStatus | None = None


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
"""The paths that are read of a document that is plain, for a server that can be asked for them alone."""

FIELDS = (
    *PLAIN_FIELDS,
    "metadata.labels",
    "status.observedGeneration",
    "status.lastUpdatedTime",
    "status.lastTransitionTime",
    "status.conditions",
)
"""The paths that are read of any document."""

_document = msgspec.json.Decoder(WireResource)
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
_NO_STATUS = WireStatus()
_NO_CONDITION = WireCondition()


def read_resource(document: msgspec.Raw) -> FetchedResource:
    """Reads one document; raises `Malformed` with the reason where it is not a resource."""
    return FetchedResource(observe(document), document)


def observe(document: msgspec.Raw | bytes) -> Observation:
    """Reads what a decision needs of a resource, whichever shape it has."""
    return observation(_decode(_document, document))


def plain_observation(document: WireResource) -> Observation | None:
    """The same for a document that has labels and a flat status; None for any other.

    Nothing else of such a document counts, so that nothing else need be asked for where all are like it.
    """
    labels, status = document.labels, document.status
    if labels is None or status is None or not document.id:
        return None
    phase, observed, updated = status.phase, status.observed_generation, status.last_updated_time
    if phase is None or observed is None or updated is None or updated.year == 1:
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


def observation(document: WireResource) -> Observation:
    """What a decision needs to know of a resource that has been decoded that far."""
    plain = plain_observation(document)
    if plain is not None:
        return plain
    if not document.id:
        raise Malformed("id: expected a non-empty string")
    status = document.status or _NO_STATUS
    generation = document.generation or 0
    labels = document.labels
    if labels is None:
        metadata = _decode(_metadata, document.metadata, "metadata: ")
        labels = metadata.labels if metadata is not None else None

    ready, available = _ready_and_available(_decode(_conditions, status.conditions, "status.conditions: "))
    is_true = ready.status.lower() == "true"
    phase, observed = status.phase, status.observed_generation
    if phase is None:
        phase = _READY if is_true else ""
    if observed is None:
        observed = status.observed_generation_camel
    if observed is None:
        # The public API stamps its Ready condition with the current generation at every write, so that it
        # says nothing about what the adapters have seen; Available carries the generation they reported.
        observed = generation if is_true else available.observed_generation or 0
    return Observation(
        document.id,
        document.kind or "",
        generation,
        observed,
        phase.lower() == _READY,
        utc_or_none(status.last_updated_time)
        or utc_or_none(status.last_updated_time_camel)
        or utc_or_none(ready.last_updated_time)
        or utc_or_none(status.last_transition_time_camel),
        NO_LABELS if labels is None else labels,
        document.paused is True,
        utc_or_none(document.pulse_requested_time),
        utc_or_none(status.last_progress_time),
        status.progress_count or 0,
    )


def _ready_and_available(conditions: list[WireCondition] | None) -> tuple[WireCondition, WireCondition]:
    """Ready (or Reconciled) and Available (or LastKnownReconciled): ours first, then the public names."""
    if not conditions:
        return _NO_CONDITION, _NO_CONDITION
    named = {condition.type: condition for condition in conditions}
    return (
        named.get("Ready") or named.get("Reconciled") or _NO_CONDITION,
        named.get("Available") or named.get("LastKnownReconciled") or _NO_CONDITION,
    )


def _decode(decoder: msgspec.json.Decoder[T], encoded: msgspec.Raw | bytes, where: str = "") -> T:
    try:
        return decoder.decode(encoded)
    except DECODE_ERRORS:
        # A second chance where the only fault is an empty time, which some servers write for none.
        try:
            loose = _without_empty_times(msgspec.json.decode(encoded))
            return decoder.decode(msgspec.json.encode(loose))
        except DECODE_ERRORS as error:
            raise Malformed(f"{where}{error}") from error


def _without_empty_times(loose: Json) -> Json:
    if isinstance(loose, list):
        return [_without_empty_times(item) for item in loose]
    if isinstance(loose, dict):
        kept = {name: value for name, value in loose.items() if name not in _TIMES or value != ""}
        return kept | {"status": _without_empty_times(kept["status"])} if "status" in kept else kept
    return loose

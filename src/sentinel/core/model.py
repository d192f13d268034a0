"""Resources as the pulse sees them.

Two shapes of resource are in the wild: one with flat status fields (`status.phase`,
`status.observed_generation`, `status.last_updated_time`, in snake or camel case) and one with a list of
conditions. Both are read here, once, into an `Observation`, so that nothing downstream knows there were two.
Only what a decision needs is decoded; the rest of the document stays raw bytes until somebody publishes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
"""JSON that we do not own: a spec, a Kubernetes object."""

NO_LABELS: dict[str, str] = {}


class Malformed(ValueError):
    """A document that cannot be read as a resource; the text says what is wrong with it."""


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


class Resource(msgspec.Struct, frozen=True):
    """A resource as fetched: what the decision reads, and the whole document, still encoded."""

    observation: Observation
    document: msgspec.Raw

    def decode(self) -> Json:
        """The whole document; paid for only by those that are published."""
        decoded: Json = msgspec.json.decode(self.document)
        return decoded


class _Metadata(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_updated_time: datetime | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str | None = None
    observed_generation: int | None = None
    observed_generation_camel: int | None = msgspec.field(default=None, name="observedGeneration")
    last_updated_time: datetime | None = None
    last_updated_time_camel: datetime | None = msgspec.field(default=None, name="lastUpdatedTime")
    last_transition_time_camel: datetime | None = msgspec.field(default=None, name="lastTransitionTime")
    conditions: list[_Condition] | None = None


class _Document(msgspec.Struct, gc=False):
    id: str
    kind: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    metadata: _Metadata | None = None
    status: _Status | None = None


_document = msgspec.json.Decoder(_Document)

_TIMES = ("last_updated_time", "lastUpdatedTime", "lastTransitionTime")
_NOTHING = _Status()
_NO_CONDITION = _Condition()


def read_resource(document: msgspec.Raw) -> Resource:
    """Reads one item of a list; raises `Malformed` with the reason where it is not a resource."""
    return Resource(observe(document), document)


def observe(document: msgspec.Raw | bytes) -> Observation:
    """Reads what a decision needs of a resource, whichever shape it has."""
    try:
        wire = _document.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wire = _decode_leniently(document, error)
    if not wire.id:
        raise Malformed("id: expected a non-empty string")
    status = wire.status or _NOTHING
    generation = wire.generation or 0
    ready, available = _conditions(status.conditions)

    if status.phase is not None:
        is_ready = status.phase.lower() == "ready"
    else:
        is_ready = ready.status.lower() == "true"

    observed = status.observed_generation
    if observed is None:
        observed = status.observed_generation_camel
    if observed is None:
        # The public API stamps its Ready condition with the current generation at every write, so that it
        # says nothing about what the adapters have seen; Available carries the generation they reported.
        observed = generation if ready.status.lower() == "true" else available.observed_generation or 0

    updated = (
        _moment(status.last_updated_time)
        or _moment(status.last_updated_time_camel)
        or _moment(ready.last_updated_time)
        or _moment(status.last_transition_time_camel)
    )
    labels = wire.labels
    if labels is None:
        labels = wire.metadata.labels if wire.metadata is not None else None
    return Observation(
        wire.id,
        wire.kind or "",
        generation,
        observed,
        is_ready,
        updated,
        NO_LABELS if labels is None else labels,
    )


def _conditions(conditions: list[_Condition] | None) -> tuple[_Condition, _Condition]:
    """Ready (or Reconciled) and Available (or LastKnownReconciled): ours first, then the public names."""
    if not conditions:
        return _NO_CONDITION, _NO_CONDITION
    named = {condition.type: condition for condition in conditions}
    return (
        named.get("Ready") or named.get("Reconciled") or _NO_CONDITION,
        named.get("Available") or named.get("LastKnownReconciled") or _NO_CONDITION,
    )


def _moment(time: datetime | None) -> datetime | None:
    """The time in UTC; None for Go's zero time, which is how a Go server writes that there is none."""
    if time is None or time.year == 1:
        return None
    return time if time.tzinfo is UTC else _in_utc(time)


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _decode_leniently(document: msgspec.Raw | bytes, error: Exception) -> _Document:
    """Second chance for a document whose only fault is an empty time, which some servers write for none."""
    try:
        loose = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Malformed(str(error)) from error
    status = loose.get("status") if isinstance(loose, dict) else None
    if isinstance(status, dict):
        conditions = status.get("conditions")
        for part in (status, *(conditions if isinstance(conditions, list) else ())):
            if isinstance(part, dict):
                for name in _TIMES:
                    if part.get(name) == "":
                        del part[name]
    try:
        return msgspec.convert(loose, _Document)
    except msgspec.ValidationError as still:
        raise Malformed(str(still)) from still

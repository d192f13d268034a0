"""CloudEvents 1.0, structured and binary.

An event's data is encoded once, by whoever composes it; both modes only place those bytes. The attributes go
along as message headers in either mode, so that a consumer can route without opening the body.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

SPEC_VERSION = "1.0"
SOURCE = "hyperfleet-sentinel"
DATA_CONTENT_TYPE = "application/json"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json"


# The first that fits; English has more, but a fleet's kinds rarely do.
_SINGULARS = (("ies", "y"), ("sses", "ss"), ("uses", "us"), ("xes", "x"), ("ss", "ss"), ("s", ""))


class Mode(StrEnum):
    """How an event is laid out in a message."""

    STRUCTURED = "structured"
    BINARY = "binary"


class Event(msgspec.Struct, frozen=True):
    """One event, ready to be laid out in either mode."""

    id: str
    type: str
    subject: str
    time: str
    data: msgspec.Raw
    traceparent: str = ""


def event_type(kind: str, resource_type: str) -> str:
    """The type of a reconcile event for a resource of this kind."""
    return f"com.redhat.hyperfleet.{(kind or singular(resource_type)).lower()}.reconcile"


def singular(plural: str) -> str:
    """The singular of a resource type, for resources that do not state their kind."""
    for ending, replacement in _SINGULARS:
        if plural.endswith(ending) and len(plural) > len(ending):
            return plural.removesuffix(ending) + replacement
    return plural


def attributes(event: Event) -> dict[str, str]:
    """The context attributes by their bare names, `datacontenttype` included."""
    named = {
        "specversion": SPEC_VERSION,
        "id": event.id,
        "source": SOURCE,
        "type": event.type,
        "subject": event.subject,
        "time": event.time,
        "datacontenttype": DATA_CONTENT_TYPE,
    }
    if event.traceparent:
        named["traceparent"] = event.traceparent
    return named


class _Structured(msgspec.Struct):
    specversion: str
    type: str
    source: str
    id: str
    time: str
    subject: str
    datacontenttype: str
    data: msgspec.Raw
    traceparent: str | msgspec.UnsetType = msgspec.UNSET


_encoder = msgspec.json.Encoder()


def structured(event: Event) -> bytes:
    """The whole event as one JSON document."""
    return _encoder.encode(
        _Structured(
            SPEC_VERSION,
            event.type,
            SOURCE,
            event.id,
            event.time,
            event.subject,
            DATA_CONTENT_TYPE,
            event.data,
            event.traceparent or msgspec.UNSET,
        )
    )


def body(event: Event, mode: Mode) -> bytes:
    """What goes into a message's body in this mode."""
    return structured(event) if mode is Mode.STRUCTURED else bytes(event.data)


def content_type(mode: Mode) -> str:
    """The content type of a message's body in this mode."""
    return STRUCTURED_CONTENT_TYPE if mode is Mode.STRUCTURED else DATA_CONTENT_TYPE

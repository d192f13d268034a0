"""CloudEvents 1.0, structured and binary.

The data of an event is encoded once, when it is composed. Both modes copy those bytes. In both modes the
attributes are also message headers, so a consumer can route without decoding the body.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

SPEC_VERSION = "1.0"
SOURCE = "hyperfleet-sentinel"
DATA_CONTENT_TYPE = "application/json"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json"


# The first match wins. English has more rules, but the kinds of a fleet rarely need them.
_SINGULARS = (("ies", "y"), ("sses", "ss"), ("uses", "us"), ("xes", "x"), ("ss", "ss"), ("s", ""))


class Event(msgspec.Struct, frozen=True):
    """One event, for either mode."""

    id: str
    type: str
    subject: str
    time: str
    data: msgspec.Raw
    traceparent: str = ""


class Mode(StrEnum):
    """The content mode of a message."""

    STRUCTURED = "structured"
    BINARY = "binary"


def event_type(kind: str, resource_type: str) -> str:
    """Return the type of a reconcile event for this kind, or for the resource type if the kind is empty."""
    return f"com.redhat.hyperfleet.{(kind or singular(resource_type)).lower()}.reconcile"


def singular(plural: str) -> str:
    """Return the singular of a resource type, for resources without a kind."""
    for ending, replacement in _SINGULARS:
        if plural.endswith(ending) and len(plural) > len(ending):
            return plural.removesuffix(ending) + replacement
    return plural


def attributes(event: Event) -> dict[str, str]:
    """Return the context attributes by their bare names, `datacontenttype` included."""
    by_name = {
        "specversion": SPEC_VERSION,
        "id": event.id,
        "source": SOURCE,
        "type": event.type,
        "subject": event.subject,
        "time": event.time,
        "datacontenttype": DATA_CONTENT_TYPE,
    }
    if event.traceparent:
        by_name["traceparent"] = event.traceparent
    return by_name


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


def structured(event: Event, *, source: str = SOURCE) -> bytes:
    """Return the whole event as one JSON document."""
    return _encoder.encode(
        _Structured(
            SPEC_VERSION,
            event.type,
            source,
            event.id,
            event.time,
            event.subject,
            DATA_CONTENT_TYPE,
            event.data,
            event.traceparent or msgspec.UNSET,
        )
    )


def body(event: Event, mode: Mode) -> bytes:
    """Return the body of a message in this mode."""
    return structured(event) if mode is Mode.STRUCTURED else bytes(event.data)


def content_type(mode: Mode) -> str:
    """Return the content type of a message in this mode."""
    return STRUCTURED_CONTENT_TYPE if mode is Mode.STRUCTURED else DATA_CONTENT_TYPE

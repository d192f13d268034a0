"""Which resource a received event is about.

An event only says that a resource should be evaluated. Its other content may be outdated when it arrives, so only
the reference to the resource is read. Publishers put the id into the subject or into the data, under one of
several names. All of them are accepted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import msgspec

from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern
from sentinel.core.json import DECODE_ERRORS, Json

_IDS = ("id", "resource_id", "resourceId")
_ID = re.compile(segment_pattern(MAX_ID_LENGTH))
_RECONCILE = re.compile(r"com\.redhat\.hyperfleet\.([^.]+)\.reconcile(?:\..+)?")


class InvalidEvent(ValueError):
    """A message that names no resource; the text says why."""


class ResourceRef(msgspec.Struct, frozen=True):
    """A reference to a resource."""

    id: str
    href: str = ""
    """The path of the resource; empty if unknown."""
    kind: str = ""
    """The kind, in the case that the event used; empty if unknown."""


class ReceivedEvent(msgspec.Struct, frozen=True):
    """The event that caused an evaluation."""

    id: str
    type: str
    source: str
    subject: str
    time: str
    data: Json
    """The payload; None if it is not JSON."""
    attributes: Mapping[str, str]
    """All attributes by their bare names, extensions included."""


class EventTarget(msgspec.Struct, frozen=True):
    """An event and the resource that it is about."""

    ref: ResourceRef
    event: ReceivedEvent


def read(*, body: bytes, content_type: str, attributes: Mapping[str, str]) -> EventTarget:
    """Read a message whose event has these attributes. Raises `InvalidEvent` if it names no resource."""
    if not attributes.get("id"):
        raise InvalidEvent("expected a CloudEvent, got a message without the attributes of one")
    data = _data(body, content_type)
    event = ReceivedEvent(
        id=attributes["id"],
        type=attributes.get("type", ""),
        source=attributes.get("source", ""),
        subject=attributes.get("subject", ""),
        time=attributes.get("time", ""),
        data=data,
        attributes=attributes,
    )
    resource_id = event.subject or _text(data, *_IDS)
    if not resource_id:
        raise InvalidEvent(f"expected a resource's id as the subject, or in the data as one of {', '.join(_IDS)}")
    if _ID.fullmatch(resource_id) is None:
        raise InvalidEvent("expected a resource's id of at most 128 letters, digits and - . _ ~")
    kind = kind_of(event.type) or _text(data, "kind")
    # Drop a kind that cannot be part of a URL. The resource is found without it.
    return EventTarget(ResourceRef(resource_id, _text(data, "href"), kind if _ID.fullmatch(kind) else ""), event)


def kind_of(event_type: str) -> str:
    """Return the kind in the type of a reconcile event, in lower case; "" for other event types."""
    match = _RECONCILE.fullmatch(event_type)
    return match[1].lower() if match else ""


def _data(body: bytes, content_type: str) -> Json:
    """Return the event's data: a member of a structured event, or the whole body in binary mode."""
    document = _json(body)
    is_structured = content_type.startswith("application/cloudevents") or (
        # Some publishers send structured events with another content type.
        isinstance(document, dict) and {"specversion", "id"} <= document.keys()
    )
    if not is_structured:
        return document
    if not isinstance(document, dict):
        return None
    encoded = document.get("data_base64")
    if isinstance(encoded, str):
        try:
            return _json(base64.b64decode(encoded, validate=True))
        except ValueError:  # invalid base64, or not even ASCII
            return None
    return document.get("data")


def _json(encoded: bytes) -> Json:
    try:
        decoded: Json = msgspec.json.decode(encoded)
    except DECODE_ERRORS:
        return None
    return decoded


def _text(data: Json, *names: str) -> str:
    if isinstance(data, dict):
        for name in names:
            value = data.get(name)
            if isinstance(value, str) and value:
                return value
    return ""

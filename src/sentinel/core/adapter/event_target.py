"""What a received event says: which resource to look at again.

An event is a hint. Whatever else it claims about the resource may be old by the time it arrives, so nothing but
the way to the resource is taken from it. Publishers name the resource in different places - as the subject, or
within the data under a name of their own choice - and any of them will do.
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
    """A message that leads to no resource; the text says why."""


class ResourceRef(msgspec.Struct, frozen=True):
    """The way to a resource."""

    id: str
    href: str = ""
    """Its path, where it is known."""
    kind: str = ""
    """As far as it is known; in whatever case the event had it."""


class ReceivedEvent(msgspec.Struct, frozen=True):
    """The event that caused an evaluation."""

    id: str
    type: str
    source: str
    subject: str
    time: str
    data: Json
    """What the publisher put into it; None where that is not JSON."""
    attributes: Mapping[str, str]
    """All of its attributes by their bare names, extensions included."""


class EventTarget(msgspec.Struct, frozen=True):
    """An event, and the resource that it is about."""

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
    found = event.subject or _text(data, *_IDS)
    if not found:
        raise InvalidEvent(f"expected a resource's id as the subject, or in the data as one of {', '.join(_IDS)}")
    if _ID.fullmatch(found) is None:
        raise InvalidEvent("expected a resource's id of letters, digits, - . _ ~, at most 128 of them")
    kind = kind_of(event.type) or _text(data, "kind")
    # What could not stand in a URL is nobody's kind; the resource is found without one.
    return EventTarget(ResourceRef(found, _text(data, "href"), kind if _ID.fullmatch(kind) else ""), event)


def kind_of(event_type: str) -> str:
    """The kind that a reconcile event is about, in lower case; nothing for events of other types."""
    match = _RECONCILE.fullmatch(event_type)
    return match[1].lower() if match else ""


def _data(body: bytes, content_type: str) -> Json:
    """The event's data: a member of a structured event, or in binary mode the whole body."""
    document = _json(body)
    is_structured = content_type.startswith("application/cloudevents") or (
        # Some publishers send structured events without saying so.
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
        except ValueError:  # also for letters that are not even ASCII
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

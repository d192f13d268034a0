"""The format of server-sent events (`text/event-stream`), as the HTML standard defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sentinel.web.routing import Parameter, Request

CONTENT_TYPE: Final = "text/event-stream"
HEADERS: Final[Mapping[str, str]] = {"X-Accel-Buffering": "no"}
"""nginx and proxies like it would collect events before they pass them on."""
COMMENT: Final = b":\n\n"
"""Clients ignore it. Sent now and then, so that both sides of an idle connection notice if the other is gone."""

LAST_EVENT_ID: Final = Parameter(
    name="Last-Event-ID", description="The `id` of the last event that the client has received, to go on after it."
)


def encode(event_type: str, data: bytes, *, event_id: str) -> bytes:
    """Encode an event. `data` is JSON, in which line breaks are only white space."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"event: %s\nid: %s\ndata: %s\n\n" % (event_type.encode(), event_id.encode(), data)


def encode_id(event_id: str) -> bytes:
    """Encode a new id without an event: a client that reconnects goes on after it."""
    return b":\nid: %s\n\n" % event_id.encode()


def last_event_id(request: Request) -> str | None:
    """Return the id that a client goes on after, or None if it begins. An empty one counts as missing."""
    return request.header(LAST_EVENT_ID.name) or None

"""What a webhook sends for an event of the hub: a CloudEvent, and a signature over it with the time."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Final

import msgspec

from sentinel.core import events
from sentinel.core.times import timestamp

SOURCE: Final = "sentinel-hub"
TYPE_PREFIX: Final = "sentinel.hub."
SIGNATURE_HEADER: Final = "Sentinel-Signature"
CONTENT_TYPE: Final = events.STRUCTURED_CONTENT_TYPE


def body(event_type: str, *, number: int, subject: str, time: datetime, data: bytes) -> bytes:
    """Return the request's body. Its id is the number of the event: repeated requests have the same."""
    event = events.Event(
        id=str(number),
        type=f"{TYPE_PREFIX}{event_type}",
        subject=subject,
        time=timestamp(time),
        data=msgspec.Raw(data or b"{}"),
    )
    return events.structured(event, source=SOURCE)


def signature(secret: bytes, content: bytes, now: datetime) -> str:
    """Return the value of the header: the time, so that an old request cannot be sent again, and the HMAC."""
    seconds = int(now.timestamp())
    digest = hmac.new(secret, f"{seconds}.".encode() + content, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"

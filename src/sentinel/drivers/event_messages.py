"""Reads events from received messages, and the headers of dead letters, for all brokers.

CloudEvents bindings prefix attributes differently (`cloudEvents:` or `cloudEvents_` on AMQP, `ce-` on Pub/Sub),
and some publishers set no headers and rely on the body of a structured event. This module reads all of them
into the same `Message`. It rejects nothing: a message that is not a valid event has no attributes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from sentinel.core.times import timestamp
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

REASON_HEADER = "dead-letter-reason"
TIME_HEADER = "dead-letter-time"
ATTEMPTS_HEADER = "dead-letter-attempts"
REPLAYED_HEADER = "replayed-time"
"""Marks a replayed dead letter. It counts as a new message, not as the one that was dead-lettered."""
ADDED_HEADERS = frozenset((REASON_HEADER, TIME_HEADER, ATTEMPTS_HEADER, REPLAYED_HEADER))

_MAX_REASON_BYTES = 1_000
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text_decoder = msgspec.json.Decoder(str)


class DecodedMessage(msgspec.Struct, frozen=True):
    """A message and its delivery details."""

    message: Message
    key: Hashable | None = None
    """Identifies the message across redeliveries."""
    attempts: int = 1
    published_time: datetime | None = None


def unreadable(body: bytes, error: Exception, *, log: Log, key: Hashable, attempts: int) -> DecodedMessage:
    """Log a message that our code failed to read, and return it with its body only.

    It is then dead-lettered as an invalid event. Without a delivery nothing would settle it, and it would occupy a
    slot forever. `key` and `attempts` come from the broker and help to find the message.
    """
    log.exception("message.unreadable", key=key, attempts=attempts, error=error)
    return DecodedMessage(Message(body, "", {}))


def read_message(
    *, body: bytes, content_type: str, headers: Mapping[str, str], prefixes: Sequence[str]
) -> Message:
    """Read a message; headers with one of the `prefixes` are event attributes."""
    attributes = {
        name.removeprefix(prefix).lower(): value
        for prefix in prefixes
        for name, value in headers.items()
        if name.startswith(prefix)
    }
    if "id" not in attributes:
        attributes = _structured_attributes(body)
    elif content_type and not content_type.startswith("application/cloudevents"):
        # In binary mode the content type of the message is that of the data.
        attributes.setdefault("datacontenttype", content_type)
    return Message(body, content_type, attributes)


def _structured_attributes(body: bytes) -> dict[str, str]:
    """Return the attributes of a structured event; empty for JSON without `specversion` and `id`."""
    try:
        members = _members_decoder.decode(body)
        if not {"specversion", "id"} <= members.keys():
            return {}
        # Attributes that are not strings are rare and skipped; the data may be any JSON.
        encoded = ((name, bytes(value)) for name, value in members.items() if name not in ("data", "data_base64"))
        return {name: _text_decoder.decode(value) for name, value in encoded if value.startswith(b'"')}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def parse_time(text: str | None) -> datetime | None:
    """Parse a header's time; None if it is invalid or has no time zone."""
    try:
        parsed = datetime.fromisoformat(text or "")
        return None if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC, the first hours of year 1 would fall into the year before
        return None


def dead_letter_headers(*, reason: str, attempts: int, now: datetime) -> dict[str, str]:
    truncated = reason.encode(errors="replace")[:_MAX_REASON_BYTES].decode(errors="ignore")
    return {REASON_HEADER: truncated, ATTEMPTS_HEADER: str(attempts), TIME_HEADER: timestamp(now)}


def read_dead_letter(message: Message, headers: Mapping[str, str]) -> DeadLetter:
    """Read a dead letter from a message and all its headers."""
    attempts = headers.get(ATTEMPTS_HEADER, "")
    return DeadLetter(
        id=message.attributes.get("id") or hashlib.sha256(message.body).hexdigest()[:16],
        type=message.attributes.get("type", ""),
        subject=message.attributes.get("subject", ""),
        reason=headers.get(REASON_HEADER, ""),
        time=parse_time(headers.get(TIME_HEADER)),
        attempts=int(attempts) if attempts.isdecimal() else 0,
        message=message,
    )

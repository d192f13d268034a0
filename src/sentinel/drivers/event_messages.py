"""What brokers have in common about a message that was received: which event it is.

The bindings of CloudEvents prefix attributes differently (`cloudEvents:` or `cloudEvents_` on AMQP, `ce-` on
Pub/Sub), and some publishers set none at all and rely on the body of a structured event. Here all of them come
out alike. Nothing is refused: what cannot be read as an event simply has no attributes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from sentinel.core import events
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

REASON = "dead-letter-reason"
TIME = "dead-letter-time"
ATTEMPTS = "dead-letter-attempts"
"""Headers of a dead letter, beside those that it came with."""
REPLAYED = "replayed-time"
"""Header of a message that was a dead letter: it is not the one that was given up before."""
OURS = frozenset((REASON, TIME, ATTEMPTS, REPLAYED))

_LONGEST_REASON = 1_000
_body = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)


class Received(msgspec.Struct, frozen=True):
    """A message, and what its broker tells about it."""

    message: Message
    key: Hashable | None = None
    """What it is known by when it comes again."""
    attempts: int = 1
    published_time: datetime | None = None


def unreadable(body: bytes, error: Exception, *, log: Log, key: Hashable, attempts: int) -> Received:
    """A message that our own reading fails on. It is still one, of a body alone, and will be given up as no event:
    one that nobody settled would keep its place among those that are held, for ever.

    `key` and `attempts` are what the broker itself has to say, for whoever looks for the message.
    """
    log.unexpected("message.unreadable", key=key, attempts=attempts, error=error)
    return Received(Message(body, "", {}))


def message(*, body: bytes, content_type: str, headers: Mapping[str, str], prefixes: Sequence[str]) -> Message:
    """The message as the port has it; `prefixes` are those that mark an attribute among the headers."""
    attributes = {
        name.removeprefix(prefix).lower(): value
        for prefix in prefixes
        for name, value in headers.items()
        if name.startswith(prefix)
    }
    if "id" not in attributes:
        attributes = _within(body)
    elif content_type and not content_type.startswith("application/cloudevents"):
        # In binary mode the message's own content type is that of the data.
        attributes.setdefault("datacontenttype", content_type)
    return Message(body, content_type, attributes)


def _within(body: bytes) -> dict[str, str]:
    """The attributes of a structured event, which is told from other JSON by its version and id."""
    try:
        members = _body.decode(body)
        if not {"specversion", "id"} <= members.keys():
            return {}
        # Attributes that are not texts are rare, and the data may be anything: what is no text is passed over.
        texts = ((name, bytes(value)) for name, value in members.items() if name not in ("data", "data_base64"))
        return {name: _text.decode(value) for name, value in texts if value.startswith(b'"')}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def moment(text: str | None) -> datetime | None:
    """A moment from a header; None where it is none, or says nothing of its zone."""
    try:
        parsed = datetime.fromisoformat(text or "")
        return None if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC, the first hours of the year 1 would be in the year before
        return None


def given_up(*, reason: str, attempts: int, now: datetime) -> dict[str, str]:
    """The headers that make a message a dead letter."""
    shown = reason.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
    return {REASON: shown, ATTEMPTS: str(attempts), TIME: events.timestamp(now)}


def dead_letter(received: Message, headers: Mapping[str, str]) -> DeadLetter:
    """A dead letter, from a message and all of its headers."""
    attempts = headers.get(ATTEMPTS, "")
    return DeadLetter(
        id=received.attributes.get("id") or hashlib.sha256(received.body).hexdigest()[:16],
        type=received.attributes.get("type", ""),
        subject=received.attributes.get("subject", ""),
        reason=headers.get(REASON, ""),
        time=moment(headers.get(TIME)),
        attempts=int(attempts) if attempts.isdecimal() else 0,
        message=received,
    )

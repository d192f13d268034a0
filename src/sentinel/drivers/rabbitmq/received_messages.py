"""Decodes messages that RabbitMQ delivers, and builds the properties for republishing them.

A message is republished when it is dead-lettered and when it is replayed. It keeps its properties except those
with side effects: a time to live, further recipients (CC, BCC), the user id, which the broker would verify, and
the broker's own headers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any

import pamqp.frame
from aiormq.abc import DeliveredMessage
from pamqp import encode
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from sentinel.core.times import timestamp
from sentinel.drivers import event_messages
from sentinel.drivers.event_messages import DecodedMessage
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

_PREFIXES = ("cloudEvents:", "cloudEvents_")
_DELIVERY_COUNT = "x-delivery-count"
_DROPPED_HEADERS = event_messages.ADDED_HEADERS | {"CC", "BCC", _DELIVERY_COUNT}
_PERSISTENT = 2


def decode(delivered: DeliveredMessage, *, log: Log) -> DecodedMessage:
    """Decode any message; one that our code fails on is logged and returned with its body only."""
    try:
        message = _read_message(delivered)
        return DecodedMessage(
            message, _key(delivered, message), _attempts(delivered), _published_time(delivered, message)
        )
    except Exception as error:  # anyone may publish anything
        attempts = 2 if delivered.redelivered else 1
        key = delivered.delivery_tag
        return event_messages.unreadable(delivered.body, error, log=log, key=key, attempts=attempts)


def read_dead_letter(delivered: DeliveredMessage) -> DeadLetter:
    return event_messages.read_dead_letter(_read_message(delivered), _text_headers(delivered))


def dead_letter_properties(
    delivered: DeliveredMessage, *, reason: str, attempts: int, now: datetime
) -> Basic.Properties:
    added = event_messages.dead_letter_headers(reason=reason, attempts=attempts, now=now)
    return _republish_properties(delivered, added)


def replay_properties(delivered: DeliveredMessage, *, now: datetime) -> Basic.Properties:
    added = {event_messages.REPLAYED_HEADER: timestamp(now)}
    return _republish_properties(delivered, added, timestamp=now)


def _read_message(delivered: DeliveredMessage) -> Message:
    return event_messages.read_message(
        body=delivered.body,
        content_type=delivered.header.properties.content_type or "",
        headers=_text_headers(delivered),
        prefixes=_PREFIXES,
    )


def _key(delivered: DeliveredMessage, message: Message) -> Hashable | None:
    """Identify the event across redeliveries; a replay is another event.

    The body is part of the key, so a publisher that gives all its events the same id loses none.
    """
    event_id = message.attributes.get("id")
    if not event_id:
        return None
    replayed = _text_headers(delivered).get(event_messages.REPLAYED_HEADER, "")
    source = message.attributes.get("source", "")
    return source, event_id, replayed, hashlib.sha256(delivered.body).hexdigest()


def _attempts(delivered: DeliveredMessage) -> int:
    """Return how often it was delivered: quorum queues count, others only flag a redelivery."""
    count = (delivered.header.properties.headers or {}).get(_DELIVERY_COUNT)
    known = count + 1 if isinstance(count, int) else 1
    return max(known, 2 if delivered.redelivered else 1)


def _published_time(delivered: DeliveredMessage, message: Message) -> datetime | None:
    """Return the timestamp property, or the event's own time if it is the same second but more precise."""
    timestamp = delivered.header.properties.timestamp
    event_time = event_messages.parse_time(message.attributes.get("time"))
    if not isinstance(timestamp, datetime):
        return event_time
    if event_time is not None and event_time.replace(microsecond=0) == timestamp:
        return event_time
    return timestamp


def _republish_properties(
    delivered: DeliveredMessage, added: Mapping[str, str], *, timestamp: datetime | None = None
) -> Basic.Properties:
    """Copy the properties with these headers added; values that pamqp can decode but not encode are dropped."""
    old = delivered.header.properties
    headers = old.headers or {}
    kept = {
        name: value for name, value in headers.items() if name not in _DROPPED_HEADERS and _is_encodable(value)
    }
    properties = Basic.Properties(
        content_type=old.content_type,
        content_encoding=old.content_encoding,
        headers={**kept, **added},
        delivery_mode=_PERSISTENT,
        priority=old.priority,
        correlation_id=old.correlation_id,
        reply_to=old.reply_to,
        message_id=old.message_id,
        timestamp=timestamp or old.timestamp,
        message_type=old.message_type,
        app_id=old.app_id,
    )
    # If its own headers fill a frame, adding ours would make the broker close the connection, every time.
    if not _fits(properties, delivered.channel.connection.connection_tune.frame_max):
        properties.headers = dict(added)
    return properties


def _is_encodable(value: Any) -> bool:
    try:
        encode.encode_table_value(value)
    except Exception:  # text that is not UTF-8, a number that is too large: each raises something else
        return False
    return True


def _fits(properties: Basic.Properties, frame_max: int) -> bool:
    return not frame_max or len(pamqp.frame.marshal(ContentHeader(properties=properties), 1)) <= frame_max


def _text_headers(delivered: DeliveredMessage) -> dict[str, str]:
    headers = delivered.header.properties.headers or {}
    return {
        name: value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in headers.items()
    }

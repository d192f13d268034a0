"""What is read from a message that RabbitMQ delivers, and how one is written again.

A message is written again when it is given up, and when it is replayed. It keeps what it came with, except for
what would have effects of its own on the way: a time to live, further recipients, the user who sent it (whom the
broker would check), and what the broker notes down itself.
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

from sentinel.core import events
from sentinel.drivers import event_messages
from sentinel.drivers.event_messages import Received
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

_PREFIXES = ("cloudEvents:", "cloudEvents_")
_DELIVERY_COUNT = "x-delivery-count"
_NOT_KEPT = event_messages.OURS | {"CC", "BCC", _DELIVERY_COUNT}
_PERSISTENT = 2


def receive(delivered: DeliveredMessage, *, log: Log) -> Received:
    """Everything about a message, whatever it is; `log` hears of one that our own reading fails on."""
    try:
        message = read(delivered)
        return Received(message, key(delivered, message), attempts(delivered), published_time(delivered, message))
    except Exception as error:  # the edge to whatever strangers have published
        times = 2 if delivered.redelivered else 1
        return event_messages.unreadable(
            delivered.body, error, log=log, key=delivered.delivery_tag, attempts=times
        )


def read(delivered: DeliveredMessage) -> Message:
    """The message as the port has it."""
    return event_messages.message(
        body=delivered.body,
        content_type=delivered.header.properties.content_type or "",
        headers=_texts(delivered),
        prefixes=_PREFIXES,
    )


def key(delivered: DeliveredMessage, message: Message) -> Hashable | None:
    """What this event is known by when it comes again; one that was replayed since is another.

    The body is part of it, so that a publisher who gives all its events the same id loses none.
    """
    event_id = message.attributes.get("id")
    if not event_id:
        return None
    replayed = _texts(delivered).get(event_messages.REPLAYED, "")
    source = message.attributes.get("source", "")
    return source, event_id, replayed, hashlib.sha256(delivered.body).hexdigest()


def attempts(delivered: DeliveredMessage) -> int:
    """How often it was delivered; quorum queues count, others know only whether it was the first time."""
    count = (delivered.header.properties.headers or {}).get(_DELIVERY_COUNT)
    known = count + 1 if isinstance(count, int) else 1
    return max(known, 2 if delivered.redelivered else 1)


def published_time(delivered: DeliveredMessage, message: Message) -> datetime | None:
    """When it was published: the property has whole seconds, and the event's own time may say it better."""
    stamped = delivered.header.properties.timestamp
    own = event_messages.moment(message.attributes.get("time"))
    if not isinstance(stamped, datetime):
        return own
    return own if own is not None and own.replace(microsecond=0) == stamped else stamped


def dead_letter(delivered: DeliveredMessage) -> DeadLetter:
    return event_messages.dead_letter(read(delivered), _texts(delivered))


def as_dead_letter(delivered: DeliveredMessage, *, reason: str, attempts: int, now: datetime) -> Basic.Properties:
    """The properties under which it is put among the dead letters."""
    return _again(delivered, event_messages.given_up(reason=reason, attempts=attempts, now=now))


def as_replay(delivered: DeliveredMessage, *, now: datetime) -> Basic.Properties:
    """The properties under which a dead letter is published again."""
    return _again(delivered, {event_messages.REPLAYED: events.timestamp(now)}, timestamp=now)


def _again(
    delivered: DeliveredMessage, added: Mapping[str, str], *, timestamp: datetime | None = None
) -> Basic.Properties:
    """Its properties with these headers, less what cannot be written, for more can be read than that."""
    was = delivered.header.properties
    headers = was.headers or {}
    kept = {name: value for name, value in headers.items() if name not in _NOT_KEPT and _is_writable(value)}
    properties = Basic.Properties(
        content_type=was.content_type,
        content_encoding=was.content_encoding,
        headers={**kept, **added},
        delivery_mode=_PERSISTENT,
        priority=was.priority,
        correlation_id=was.correlation_id,
        reply_to=was.reply_to,
        message_id=was.message_id,
        timestamp=timestamp or was.timestamp,
        message_type=was.message_type,
        app_id=was.app_id,
    )
    # Where its own headers fill a frame, with ours the broker would end the connection, and again and again.
    if not _fits(properties, delivered.channel.connection.connection_tune.frame_max):
        properties.headers = dict(added)
    return properties


def _is_writable(value: Any) -> bool:
    try:
        encode.encode_table_value(value)
    except Exception:  # a text that is not UTF-8, a number that is too large; each raises something else
        return False
    return True


def _fits(properties: Basic.Properties, largest: int) -> bool:
    return not largest or len(pamqp.frame.marshal(ContentHeader(properties=properties), 1)) <= largest


def _texts(delivered: DeliveredMessage) -> dict[str, str]:
    headers = delivered.header.properties.headers or {}
    return {
        name: value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in headers.items()
    }

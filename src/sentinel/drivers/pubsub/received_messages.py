"""Decodes messages pulled from Pub/Sub, and builds messages that republish them.

Pub/Sub cannot publish to a single subscription. A replay goes to the topic with the name of its subscription,
and our subscribers skip replays for others. Any other consumer of the topic sees the event once more, which
only makes it read the state again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from sentinel.core.times import timestamp
from sentinel.drivers import event_messages
from sentinel.drivers.event_messages import DecodedMessage
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

_PREFIXES = ("ce-",)
_CONTENT_TYPE = "content-type"
_REPLAYED_FOR = "replayed-for"
_DROPPED_ATTRIBUTES = event_messages.ADDED_HEADERS | {_REPLAYED_FOR}
_MAX_ATTRIBUTES = 100
"""Pub/Sub's limit per message."""


def decode(pulled: ReceivedMessage, *, log: Log) -> DecodedMessage:
    """Decode any message; one that our code fails on is logged and returned with its body only."""
    message = pulled.message
    key, attempts = message.message_id, max(1, pulled.delivery_attempt)
    try:
        return DecodedMessage(_read_message(message), key, attempts, _published_time(message))
    except Exception as error:  # anyone may publish anything
        return event_messages.unreadable(bytes(message.data), error, log=log, key=key, attempts=attempts)


def is_replay_for_other(message: PubsubMessage, subscription: str) -> bool:
    return bool(message.attributes.get(_REPLAYED_FOR, subscription) != subscription)


def read_dead_letter(message: PubsubMessage) -> DeadLetter:
    return event_messages.read_dead_letter(_read_message(message), dict(message.attributes))


def make_dead_letter(message: PubsubMessage, *, reason: str, attempts: int, now: datetime) -> PubsubMessage:
    return _republished(message, event_messages.dead_letter_headers(reason=reason, attempts=attempts, now=now))


def make_replay(message: PubsubMessage, *, subscription: str, now: datetime) -> PubsubMessage:
    added = {event_messages.REPLAYED_HEADER: timestamp(now), _REPLAYED_FOR: subscription}
    return _republished(message, added)


def _read_message(message: PubsubMessage) -> Message:
    attributes = dict(message.attributes)
    return event_messages.read_message(
        body=bytes(message.data),
        content_type=attributes.get(_CONTENT_TYPE, ""),
        headers=attributes,
        prefixes=_PREFIXES,
    )


def _published_time(message: PubsubMessage) -> datetime | None:
    time: Any = message.publish_time  # declared as protobuf's Timestamp, but a datetime or None
    return time and datetime.fromtimestamp(time.timestamp(), tz=UTC)


def _republished(message: PubsubMessage, added: Mapping[str, str]) -> PubsubMessage:
    kept = {name: value for name, value in message.attributes.items() if name not in _DROPPED_ATTRIBUTES}
    if len(kept) + len(added) > _MAX_ATTRIBUTES:
        kept = {}
    # Without the ordering key: the message has left that order, and the key requires an ordered subscription.
    return PubsubMessage(data=message.data, attributes={**kept, **added})

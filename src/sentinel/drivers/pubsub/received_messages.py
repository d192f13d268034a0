"""What is read from a message that Pub/Sub delivers, and how one is published again.

Pub/Sub cannot put a message into one subscription alone. A replay goes to the topic, addressed: our own
subscribers pass over what is addressed to others. Any other consumer of the topic sees the event once more,
which to a consumer of hints is one more hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from sentinel.core import events
from sentinel.drivers import event_messages
from sentinel.drivers.event_messages import Received
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.log import Log

_PREFIXES = ("ce-",)
_CONTENT_TYPE = "content-type"
_ADDRESSEE = "replayed-for"
_NOT_KEPT = event_messages.OURS | {_ADDRESSEE}
_MOST_ATTRIBUTES = 100
"""As many as Pub/Sub takes with a message."""


def receive(pulled: ReceivedMessage, *, log: Log) -> Received:
    """Everything about a message, whatever it is; `log` hears of one that our own reading fails on."""
    inner = pulled.message
    key, attempts = inner.message_id, max(1, pulled.delivery_attempt)
    try:
        return Received(read(inner), key, attempts, published_time(inner))
    except Exception as error:  # the edge to whatever strangers have published
        return event_messages.unreadable(bytes(inner.data), error, log=log, key=key, attempts=attempts)


def read(pulled: PubsubMessage) -> Message:
    """The message as the port has it."""
    headers = dict(pulled.attributes)
    return event_messages.message(
        body=bytes(pulled.data),
        content_type=headers.get(_CONTENT_TYPE, ""),
        headers=headers,
        prefixes=_PREFIXES,
    )


def published_time(pulled: PubsubMessage) -> datetime | None:
    """When Pub/Sub took it, which it always says."""
    moment: datetime | None = pulled.publish_time
    return moment and datetime.fromtimestamp(moment.timestamp(), tz=UTC)


def is_for(pulled: PubsubMessage, subscription: str) -> bool:
    """False for what was replayed for another subscription."""
    return bool(pulled.attributes.get(_ADDRESSEE, subscription) == subscription)


def dead_letter(pulled: PubsubMessage) -> DeadLetter:
    return event_messages.dead_letter(read(pulled), dict(pulled.attributes))


def as_dead_letter(pulled: PubsubMessage, *, reason: str, attempts: int, now: datetime) -> PubsubMessage:
    """What is published among the dead letters."""
    return _again(pulled, event_messages.given_up(reason=reason, attempts=attempts, now=now))


def as_replay(pulled: PubsubMessage, *, subscription: str, now: datetime) -> PubsubMessage:
    """What is published to the topic of the subscription."""
    return _again(pulled, {event_messages.REPLAYED: events.timestamp(now), _ADDRESSEE: subscription})


def _again(pulled: PubsubMessage, added: Mapping[str, str]) -> PubsubMessage:
    kept = {name: value for name, value in pulled.attributes.items() if name not in _NOT_KEPT}
    if len(kept) + len(added) > _MOST_ATTRIBUTES:
        kept = {}
    # Without its ordering key: it is no longer part of that order, and would need a subscription that keeps it.
    return PubsubMessage(data=pulled.data, attributes={**kept, **added})

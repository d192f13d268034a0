"""Ports for receiving events and for handling dead letters.

Three brokers ship: RabbitMQ, Google Pub/Sub and an in-memory one. All pass the same contract suite. Delivery is at
least once. An event only tells a consumer to read the state again, so duplicates are harmless but losses are not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

DEAD_LETTERS_SUFFIX = "-dead-letters"
"""Appended to a subscription's name to name the queue or topic of its dead letters."""


class Message(msgspec.Struct, frozen=True):
    """A received message, independent of the broker."""

    body: bytes
    content_type: str
    attributes: Mapping[str, str]
    """CloudEvents attributes without prefix, from the headers or else from the body. Empty if the message is not
    a valid event; such a message is delivered anyway."""


class Delivery(Protocol):
    """A message held by a subscriber until it is settled: acked, nacked or dead-lettered.

    Only the first settlement counts; later ones do nothing. If the connection was lost, the broker delivers the
    message again, and the subscriber then applies the settlement to it. Settling after the subscriber was closed
    has no effect. The three methods raise nothing but cancellation, and a cancelled call still takes effect.
    """

    @property
    def message(self) -> Message: ...

    @property
    def attempts(self) -> int:
        """How often the message was delivered, including this time. A lower bound if the broker does not count."""

    @property
    def received_time(self) -> datetime: ...

    @property
    def published_time(self) -> datetime | None:
        """When the message was published or replayed; None if unknown."""

    async def ack(self) -> None:
        """Done: remove the message from the broker."""

    async def nack(self) -> None:
        """Not done: have the broker deliver the message again, to any subscriber of the subscription.

        Redelivery is delayed, longer with each attempt. Until then the message counts as held. This call does not
        wait for it.
        """

    async def dead_letter(self, reason: str) -> None:
        """Cannot be done: store the message and the reason with the dead letters, then ack it.

        If storing fails, the message is nacked.
        """


class Subscriber(Protocol):
    """Receives events.

    Subscribers of one subscription share its messages: each message goes to one of them. Different subscriptions
    each get every message published after they were created. Unsettled messages are delivered again when the
    subscriber closes or loses its connection.

    A subscriber takes at most `max_in_flight` messages from the broker, including nacked ones that wait for
    redelivery. A delivery is handed out only when the iterator is advanced, so a slow consumer slows the
    subscriber down, and one that stops iterating pauses it.

    A delivery may be held as long as its work takes. If the broker has a limit, the driver requeues the message
    before it and receives it again. This subscriber never hands out the same message a second time while work on
    it is in progress. Another subscriber of the subscription may get it meanwhile.
    """

    broker_type: str
    """`rabbitmq`, `gcp-pubsub` or `memory`, the label value in metrics."""

    async def open(self) -> None:
        """Start to connect and return. An unreachable broker is not an error; it is retried forever.

        Creates what the subscription needs and does not exist. Raises `Misconfigured` if the broker is reachable
        and will deliver nothing until its configuration changes.
        """

    def deliveries(self) -> AsyncIterator[Delivery]:
        """Yield deliveries until the subscriber is closed, across reconnects.

        Waiting for the next one may be cancelled, and several tasks may wait.
        """

    def unavailable_reason(self) -> str | None:
        """Return why nothing can be received now, or None. Used for readiness; does no I/O."""

    async def close(self) -> None:
        """End the deliveries and requeue unsettled messages for immediate redelivery.

        Takes seconds at most. Safe to repeat, and to call on a subscriber that was never opened.
        """


class DeadLetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message that was dead-lettered, without the message, which may contain anything."""

    id: str
    """The event's id, or a hash of the body if it has none."""
    type: str
    subject: str
    reason: str
    time: datetime | None
    """When it was dead-lettered; None if another program did it."""
    attempts: int


class DeadLetter(DeadLetterSummary, frozen=True, kw_only=True):
    """A message that was dead-lettered."""

    message: Message

    def summary(self) -> DeadLetterSummary:
        return DeadLetterSummary(
            id=self.id,
            type=self.type,
            subject=self.subject,
            reason=self.reason,
            time=self.time,
            attempts=self.attempts,
        )


class DeadLetters(Protocol):
    """The dead letters of one subscription, for operators.

    Operations on several letters handle each on its own: after an error some may be done, and repeating the call
    does the rest. Every method may raise `Unavailable` or `Misconfigured`.
    """

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        """Return up to `limit` dead letters without removing them, oldest first if the broker keeps order.

        Concurrent calls may briefly hide letters from each other.
        """

    async def replay(self, letter_id: str | None = None) -> int:
        """Deliver the letters with this id, or all, to this subscription only. Return how many.

        A letter is removed only after the broker has confirmed its replay. A letter that is dead-lettered again
        during the call stays.
        """

    async def drop(self, letter_id: str | None = None) -> int:
        """Delete the letters with this id, or all. Return how many."""

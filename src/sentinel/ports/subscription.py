"""Receiving events, and what becomes of those that nobody could use.

Three brokers ship: RabbitMQ, Google Pub/Sub, and one in memory. They pass one contract suite. Delivery is at
least once: every event is a hint, and whoever receives one reads the state again, so a repetition is harmless
and a loss is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

DEAD_LETTERS_SUFFIX = "-dead-letters"
"""Follows the name of a subscription in the name of the place where its dead letters are kept."""


class Message(msgspec.Struct, frozen=True):
    """What a subscriber receives, whichever broker brought it."""

    body: bytes
    content_type: str
    attributes: Mapping[str, str]
    """CloudEvents attributes by their bare names, from the message's headers or else from its body; empty where
    it is not a readable event. Such a message is delivered like any other."""


class Delivery(Protocol):
    """A message that is held until it is settled, exactly once; settling again is harmless.

    So is settling what is no longer held, because the connection was lost or the subscriber closed: the broker
    delivers the message again, and a subscriber that is still open then applies to it what was decided about
    it. None of the three raises anything but cancellation, and a cancelled one still takes effect.
    """

    @property
    def message(self) -> Message: ...

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included; at least so often, where the broker does not count."""

    @property
    def received_time(self) -> datetime: ...

    @property
    def published_time(self) -> datetime | None:
        """When it was published, or replayed; None where nobody says."""

    async def ack(self) -> None:
        """Done: the broker forgets it."""

    async def nack(self) -> None:
        """Not done: the broker delivers it again, to this or another subscriber of the subscription.

        Not at once, and later with each attempt. Until then it counts as held; this call does not wait for it.
        """

    async def dead_letter(self, reason: str) -> None:
        """Never to be done: it is put among the subscription's dead letters with the reason, safely, before the
        broker forgets it here. Where that fails, it is as if it had been nacked."""


class Subscriber(Protocol):
    """Where events are received.

    Subscribers of one subscription share its messages, each message going to one of them; different
    subscriptions each get every message published after they were made. What is not settled when a subscriber
    closes, or loses its connection, is delivered again.

    Never more than `max_in_flight` deliveries are held, those that were nacked and wait included; and no
    subscriber takes more than that from its broker. A message comes only when it is asked for, so whoever
    iterates slowly is served slowly, and whoever stops iterating has paused.

    A delivery may be held for as long as its work takes. Where a broker does not allow that, the message is
    given back in time and taken again, which nobody notices here: as long as the work goes on, this subscriber
    does not hand out the same message a second time. Another subscriber of the subscription may get it
    meanwhile.
    """

    broker_type: str
    """`rabbitmq`, `gcp-pubsub` or `memory`, as metrics name it."""

    async def open(self) -> None:
        """Begins to connect and returns; an unreachable broker is not an error, it is retried for ever.

        What the subscription needs is made where it is missing. Raises `Misconfigured` where the
        broker can be reached at once and will deliver nothing until a person changes something.
        """

    def deliveries(self) -> AsyncIterator[Delivery]:
        """The deliveries, until the subscriber is closed; they outlast lost connections. A wait for the next
        one may be cancelled, and several may wait."""

    def trouble(self) -> str | None:
        """Why nothing could be received at this moment, or None. For readiness; does no I/O."""

    async def close(self) -> None:
        """Ends the deliveries and gives back what is held, to be delivered again at once. Within seconds,
        whatever the broker does; harmless when repeated, or when never opened."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up."""

    id: str
    """The event's id, or a fingerprint of a message that has none."""
    type: str
    subject: str
    reason: str
    time: datetime | None
    """When it was given up; None where something else than a subscriber of ours put it there."""
    attempts: int
    message: Message


class DeadLetters(Protocol):
    """The dead letters of one subscription, for people.

    What is done to several is done to each by itself: after an error some may have been dealt with, and
    repeating does the rest. Every call may raise `Unavailable` or `Misconfigured`.
    """

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        """Up to so many, the oldest first as far as the broker keeps order, all of them staying where they are.

        Others who look, replay or drop at the same time may hide some from each other for a moment.
        """

    async def replay(self, letter_id: str | None = None) -> int:
        """Delivers those with this id, or all, to this subscription again and to no other; says how many.

        A letter is gone from here only when the broker has confirmed that it is there. One that comes back
        while this goes on stays.
        """

    async def drop(self, letter_id: str | None = None) -> int:
        """Forgets those with this id, or all; says how many."""

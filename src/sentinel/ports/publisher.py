"""Publishing events to a broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.events import Event


class Connectivity(msgspec.Struct, frozen=True):
    """A change of the connection to a broker, for logs and metrics."""

    is_connected: bool
    broker: str
    """The broker's address, without credentials."""
    reason: str = ""
    """Why events cannot be sent; contains no secrets."""


class Receipt(msgspec.Struct, frozen=True):
    """The outcomes of a batch."""

    outcomes: Sequence[PublishOutcome]
    """Aligned with the events."""
    seconds: Sequence[float]
    """From handing an event to the connection to its response, for each event that got one."""
    error: str = ""
    """Why the first unconfirmed event failed; contains no secrets."""


class PublishOutcome(StrEnum):
    """The result of publishing one event."""

    CONFIRMED = "confirmed"
    """The broker has taken responsibility for it."""
    UNROUTABLE = "unroutable"
    """The broker has no queue or subscription for it."""
    REFUSED = "refused"
    """The broker rejected it."""
    UNCONFIRMED = "unconfirmed"
    """No response by the deadline, or the connection was lost first. The event may have arrived."""
    UNSENDABLE = "unsendable"
    """It was not sent and never can be: too large, or not expressible in the broker's protocol."""

    # Enum hashes in Python, which would be most of the cost of counting outcomes.
    __hash__ = str.__hash__


class Publisher(Protocol):
    """Publishes events.

    `publish` returns an outcome for every event, in order, by the deadline. It raises only on cancellation: errors
    are outcomes. Events of one batch may be delivered in any order. An outcome is CONFIRMED only if the broker
    itself said so. Calls do not overlap.
    """

    broker_type: str
    """`rabbitmq`, `gcp-pubsub`, `stdout` or `memory`: the label value in metrics."""

    async def open(self) -> None:
        """Start connecting and return. An unreachable broker is not an error: it is retried until closed.

        Raises `Misconfigured` if the broker is reachable and would refuse every event.
        """

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt: ...

    def abandon(self) -> None:
        """Send nothing more of what was handed over, because another process may publish it.

        A `publish` in progress returns at once, with the outcomes that it has; the other events are unconfirmed.
        The publisher stays open.
        """

    def unavailable_reason(self) -> str | None:
        """Why events cannot be sent now, or None. For readiness; does no I/O."""

    async def close(self) -> None:
        """Release everything. Idempotent, also before `open`."""

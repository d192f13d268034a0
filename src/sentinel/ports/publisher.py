"""Where a pulse sends events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.events import Event


class Outcome(StrEnum):
    """What became of an event."""

    CONFIRMED = "confirmed"
    """The broker has taken responsibility for it."""
    UNROUTABLE = "unroutable"
    """The broker had nowhere to put it."""
    REFUSED = "refused"
    """The broker said no."""
    UNCONFIRMED = "unconfirmed"
    """No answer by the deadline, or the connection was lost before one; it may have arrived."""
    UNSENDABLE = "unsendable"
    """It was not even sent, and never could be: too large, or not expressible in the broker's protocol."""


class Receipt(msgspec.Struct, frozen=True):
    """The answer to a batch."""

    outcomes: Sequence[Outcome]
    """Aligned with the events."""
    seconds: Sequence[float]
    """From handing an event to the connection to its answer, for each that got one."""
    error: str = ""
    """Why, for the first that was not confirmed; free of secrets."""


class Connectivity(msgspec.Struct, frozen=True):
    """A change in the connection to a broker, for logs and metrics."""

    is_connected: bool
    broker: str
    """Where it is, without credentials."""
    reason: str = ""
    """Why events cannot be sent; free of secrets."""


class Publisher(Protocol):
    """Where events are sent.

    `publish` answers for every event, in order, and raises only on cancellation: trouble is an outcome. It
    returns by the deadline. Events of one batch may be delivered in any order. An outcome is CONFIRMED only on
    the broker's own word. Calls do not overlap.
    """

    broker_type: str
    """`rabbitmq`, `gcp-pubsub`, `stdout` or `memory`, as metrics name it."""

    async def open(self) -> None:
        """Begins to connect and returns; an unreachable broker is not an error, it is retried for ever.

        Raises `Misconfigured` where the broker can be reached at once and will refuse every event.
        """

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt: ...

    def trouble(self) -> str | None:
        """Why events could not be sent at this moment, or None. For readiness; does no I/O."""

    async def close(self) -> None:
        """Releases everything; harmless when repeated, or when never opened."""

"""The ports: what the components ask of the world, with the promises every driver keeps.

A driver is proven by the contract suite of its port (`tests/contract/`); `sentinel.testing` and the memory
broker pass the same suites. What the pulse and every service need is here. What only one kind of component asks
for is in a module of its own: `subscription`, `reporting` and `task_http` for adapters, `fleet_store` and
`identity` for servers. `api_trouble` is for the drivers of the pulse and of adapters alike: what keeps the
HyperFleet API from answering.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.events import Event
from sentinel.core.model import Resource


class Clock(Protocol):
    """Cadence and `now`. Timeouts of I/O are the event loop's own."""

    def now(self) -> datetime:
        """The current moment, aware, in UTC."""

    async def sleep(self, duration: timedelta) -> None:
        """Returns after `duration`, never before; at once (but after yielding) where it is not positive."""


class FetchError(Exception):
    """A walk could not be completed. The text says which page, how often it was tried, and why."""


class Page(msgspec.Struct, frozen=True):
    """One page of a walk."""

    resources: Sequence[Resource]
    """In the server's order; those that the selector excludes, and repetitions, are already gone."""
    malformed: Sequence[str] = ()
    """One text for each item that could not be read."""


class Fleet(Protocol):
    """Where resources are read from.

    A walk yields every selected resource at least once, none twice within a window of two pages, and holds at
    most two pages. It ends normally only when the server said that there is no more; otherwise it raises
    `FetchError`. Closing the iterator early stops the request that is under way.
    """

    def walk(self) -> AsyncGenerator[Page, None]: ...

    async def close(self) -> None: ...


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
    """A change in the connection to a broker, for whoever renders it."""

    is_connected: bool
    broker: str
    """Where it is, without credentials."""
    reason: str = ""
    """Why events cannot be sent; free of secrets."""


class BrokerMisconfigured(Exception):
    """The broker answers, and will refuse every event until a person changes something."""


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

        Raises `BrokerMisconfigured` where the broker can be reached at once and will refuse every event.
        """

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt: ...

    def trouble(self) -> str | None:
        """Why events could not be sent at this moment, or None. For readiness; does no I/O."""

    async def close(self) -> None:
        """Releases everything; harmless when repeated, or when never opened."""

"""Being told about changes of the fleet, for a pulse and for the commands that show changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from sentinel.core.pulse.observation import FetchedResource, MalformedItem


class StreamEnd(StrEnum):
    """Why a stream is not connected. The values are those of a metric's label."""

    CLOSED = "closed"
    """The server ended it."""
    IDLE = "idle"
    """Nothing arrived for so long that the connection is probably lost."""
    UNREACHABLE = "unreachable"
    """The server cannot be reached, or the connection was lost."""
    REFUSED = "refused"
    """The server rejected the request."""
    EXPIRED = "expired"
    """The server no longer knows the position to resume from. The stream begins again with every resource."""
    UNSUPPORTED = "unsupported"
    """The server does not know streams."""
    INVALID = "invalid"
    """The stream cannot be read."""


class Connected(msgspec.Struct, frozen=True):
    """The server has begun to send."""

    is_resumed: bool
    """Whether it continues where the last connection ended. Otherwise it begins with every resource."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection has ended, or could not be made. It is tried again."""

    reason: StreamEnd
    problem: str
    """What happened, without secrets."""
    retry_after: timedelta
    """When it is tried again, from now."""
    needs_operator: bool = False
    """Whether it fails the same way until an operator changes something."""


class Changed(msgspec.Struct, frozen=True):
    """A resource that was created or changed, or that is there when the stream begins."""

    resource: FetchedResource


class Removed(msgspec.Struct, frozen=True):
    """A resource is gone, or no longer selected. The reader may never have seen it."""

    id: str


class Synced(msgspec.Struct, frozen=True):
    """Every resource that was there when the stream began has been sent."""


class Unreadable(msgspec.Struct, frozen=True):
    """A change that could not be read."""

    item: MalformedItem


StreamItem: TypeAlias = Connected | Disconnected | Changed | Removed | Synced | Unreadable


class StreamPosition:
    """Where a stream is resumed. It may be handed to the stream of a rebuilt pulse, also with another selector: a
    server that cannot resume there says so."""

    def __init__(self) -> None:
        self.last_id = ""
        """The last id that the server sent; empty until the stream has been in sync."""


class FleetStream(Protocol):
    """Tells about the changes of all selected resources of one type, or of one of them.

    `follow` connects, and connects again for as long as it is iterated: with increasing delays, and not before the
    time that a server asks to wait. It yields what has arrived, in order; never an empty sequence. A connection
    begins with `Connected` and ends with `Disconnected`. It continues where the last one ended if the server still
    can, also in a later call of `follow`. Otherwise it begins with every selected resource, and `Synced`.

    A change may come twice, late, or not at all: several changes of one resource may come as the last of them, and
    a server may be wrong. Failures are values; closing the iterator ends the connection.
    """

    def follow(self) -> AsyncGenerator[Sequence[StreamItem], None]: ...

"""Reading the fleet, for a pulse."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from sentinel.core.pulse.observation import FetchedResource, MalformedItem
from sentinel.ports.errors import Unavailable


class FetchError(Unavailable):
    """A walk could not be completed. The message names the page, the number of attempts, and the cause."""

    def __init__(self, text: str, *, retry_after: timedelta = timedelta(0)) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """How long the server asks to wait. A walk that begins earlier fails without a request."""


class FleetPage(msgspec.Struct, frozen=True):
    """One page of a walk."""

    resources: Sequence[FetchedResource]
    """In the server's order, without duplicates and without resources that the selector excludes. They may be
    decoded only when they are read."""
    malformed: Sequence[MalformedItem] = ()
    """The items that could not be read. The selector was not applied to them."""
    version: int | None = None
    """Two pages of one reader with the same version have the same resources, and no malformed item. None if that
    is not known."""
    has_stream: bool = False
    """Whether the server says that it also streams the changes of this list; see `ports.fleet_stream`."""


class FleetReader(Protocol):
    """Reads all resources of one type.

    A walk yields every selected resource at least once, none twice within two consecutive pages. It holds at most
    two pages, and the bodies of two more. It ends normally only when the server has reported the end of the list;
    otherwise it raises `FetchError`. Closing the iterator early cancels the pending request.
    """

    def walk(self) -> AsyncGenerator[FleetPage, None]: ...

    async def close(self) -> None: ...

"""Where a pulse reads resources from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from sentinel.core.pulse.observation import FetchedResource
from sentinel.ports.errors import Unavailable


class FetchError(Unavailable):
    """A walk could not be completed. The text says which page, how often it was tried, and why."""


class FleetPage(msgspec.Struct, frozen=True):
    """One page of a walk."""

    resources: Sequence[FetchedResource]
    """In the server's order; those that the selector excludes, and repetitions, are already gone."""
    malformed: Sequence[str] = ()
    """One text for each item that could not be read."""


class FleetReader(Protocol):
    """Where resources are read from.

    A walk yields every selected resource at least once, none twice within a window of two pages, and holds at
    most two pages. It ends normally only when the server said that there is no more; otherwise it raises
    `FetchError`. Closing the iterator early stops the request that is under way.
    """

    def walk(self) -> AsyncGenerator[FleetPage, None]: ...

    async def close(self) -> None: ...

"""Where a pulse reads resources from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from sentinel.core.pulse.observation import Resource
from sentinel.ports.errors import Unavailable


class FetchError(Unavailable):
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

"""Closing what a test has made."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Protocol, TypeVar


class Closable(Protocol):
    async def close(self) -> None: ...


_Made = TypeVar("_Made", bound=Closable)


class CloseLater:
    """Closes at the end of the test everything that it was called with."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    def __call__(self, made: _Made) -> _Made:
        self._stack.push_async_callback(made.close)
        return made

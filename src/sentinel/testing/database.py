"""A database in memory.

It has no threads, no clock and no randomness. Every call yields to other tasks before and after it acts, like a
call over a network, to expose races in its callers. A test can inject faults:

    database = MemoryDatabase(faults=lambda call: Fault.AFTER_COMMIT if call == "transact" else None)
    store = MemoryFleetStore(database)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias, TypeVar, cast

from sentinel.ports.errors import Unavailable

T = TypeVar("T")


class Fault(StrEnum):
    """A fault injected into a call."""

    BEFORE_COMMIT = "before-commit"
    """Raises `Unavailable` without any effect."""
    AFTER_COMMIT = "after-commit"
    """Takes effect, then raises `Unavailable`, as if the response was lost."""
    LOST_RACE = "lost-race"
    """A transaction is undone, and its work runs again from the start."""


Faults: TypeAlias = Callable[[str], Fault | None]
"""Called with the name of the store's method; returns the fault of this call, or None."""


class MemoryDatabase:
    """A fake of `ports.database.Database` for one event loop. It keeps its data when closed."""

    def __init__(self, *, faults: Faults | None = None) -> None:
        self._faults = faults
        self._is_open = False
        self._tables: dict[type[object], object] = {}

    def tables(self, kind: type[T]) -> T:
        """Return the tables of this type, created on first use. Stores on one database share them."""
        return cast("T", self._tables.setdefault(kind, kind()))

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def unavailable_reason(self) -> str | None:
        return None if self._is_open else "the database is not open"

    async def call(self, name: str, act: Callable[[], T], *, on_lost_race: Callable[[], None] | None = None) -> T:
        """Act in one step. Other tasks may run, and cancellation may happen, before and after it."""
        await asyncio.sleep(0)
        if not self._is_open:
            raise Unavailable("the database is not open")
        fault = None if self._faults is None else self._faults(name)
        if fault is Fault.BEFORE_COMMIT:
            raise Unavailable(f"{name}: injected fault before the commit")
        if fault is Fault.LOST_RACE and on_lost_race is not None:
            on_lost_race()
        result = act()
        await asyncio.sleep(0)
        if fault is Fault.AFTER_COMMIT:
            raise Unavailable(f"{name}: injected fault after the commit")
        return result

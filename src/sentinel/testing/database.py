"""A database in memory.

It has no threads, no clock and no randomness. Every call gives way to other tasks before and after it acts, as a
call over a network would, so that mistakes of its callers show. Things go wrong on demand:

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
    """What can go wrong in a call."""

    BEFORE_COMMIT = "before-commit"
    """`Unavailable`, and nothing has taken effect."""
    AFTER_COMMIT = "after-commit"
    """`Unavailable`, and everything has: only the answer was lost."""
    LOST_RACE = "lost-race"
    """A transaction is undone, and its work is run again from the start."""


Faults: TypeAlias = Callable[[str], Fault | None]
"""Says at every call, by the name of the store's method, what is to go wrong with it."""


class MemoryDatabase:
    """`ports.database.Database` for one event loop; closing it forgets nothing."""

    def __init__(self, *, faults: Faults | None = None) -> None:
        self._faults = faults
        self._is_open = False
        self._tables: dict[type[object], object] = {}

    def tables(self, kind: type[T]) -> T:
        """The tables of this type, made when first asked for: stores on one database share them."""
        return cast("T", self._tables.setdefault(kind, kind()))

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def trouble(self) -> str | None:
        return None if self._is_open else "the database is not open"

    async def call(self, name: str, act: Callable[[], T], *, lose_race: Callable[[], None] | None = None) -> T:
        """Acts in one step. Other tasks may act before and after it, and cancellation may strike there."""
        await asyncio.sleep(0)
        if not self._is_open:
            raise Unavailable("the database is not open")
        fault = None if self._faults is None else self._faults(name)
        if fault is Fault.BEFORE_COMMIT:
            raise Unavailable(f"{name}: a fault was asked for, before the commit")
        if fault is Fault.LOST_RACE and lose_race is not None:
            lose_race()
        answer = act()
        await asyncio.sleep(0)
        if fault is Fault.AFTER_COMMIT:
            raise Unavailable(f"{name}: a fault was asked for, after the commit")
        return answer

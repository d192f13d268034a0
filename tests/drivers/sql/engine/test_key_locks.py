"""Locks by key: one task holds a key, the others wait, and none for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.drivers.sql.engine.key_locks import KeyLocks
from sentinel.ports.errors import Unavailable

AMPLE = timedelta(seconds=60)


async def test_those_who_want_the_same_have_it_in_the_order_in_which_they_came() -> None:
    locks = KeyLocks(timeout=AMPLE)
    seen: list[str] = []

    async def use(name: str) -> None:
        lock = await locks.acquire("cls-1")
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")
        lock.release()

    await asyncio.gather(*(use(name) for name in ("a", "b", "c")))

    assert seen == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


async def test_nobody_waits_for_another_key() -> None:
    locks = KeyLocks(timeout=AMPLE)

    taken = [await locks.acquire("cls-1"), await locks.acquire("cls-2")]

    assert [lock.locked() for lock in taken] == [True, True]


async def test_who_has_waited_long_enough_is_told_to_come_back_and_takes_nothing_along() -> None:
    locks = KeyLocks(timeout=timedelta(0))
    first = await locks.acquire("cls-1")

    with pytest.raises(Unavailable, match="cls-1: others were writing to it for 0 s"):
        await locks.acquire("cls-1")

    first.release()
    assert (await locks.acquire("cls-1")).locked()


async def test_what_nobody_wants_any_more_is_forgotten() -> None:
    locks = KeyLocks(timeout=AMPLE)

    (await locks.acquire("cls-1")).release()

    assert len(locks) == 0

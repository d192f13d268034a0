"""Locks by key: one task holds a key, the others wait, but not forever."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.ports.errors import Unavailable
from sentinel.runtime.key_locks import KeyLocks

TIMEOUT = timedelta(seconds=60)


async def test_tasks_acquire_a_key_in_the_order_they_asked() -> None:
    locks = KeyLocks(timeout=TIMEOUT)
    seen: list[str] = []

    async def use(name: str) -> None:
        lock = await locks.acquire("cls-1")
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")
        lock.release()

    await asyncio.gather(*(use(name) for name in ("a", "b", "c")))

    assert seen == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


async def test_different_keys_do_not_block_each_other() -> None:
    locks = KeyLocks(timeout=TIMEOUT)

    acquired = [await locks.acquire("cls-1"), await locks.acquire("cls-2")]

    assert [lock.locked() for lock in acquired] == [True, True]


async def test_a_task_that_times_out_leaves_the_lock_usable() -> None:
    locks = KeyLocks(timeout=timedelta(0))
    first = await locks.acquire("cls-1")

    with pytest.raises(Unavailable, match="cls-1: timed out after 0 s waiting for others"):
        await locks.acquire("cls-1")

    first.release()
    assert (await locks.acquire("cls-1")).locked()


async def test_an_unused_lock_is_forgotten() -> None:
    locks = KeyLocks(timeout=TIMEOUT)

    (await locks.acquire("cls-1")).release()

    assert len(locks) == 0

"""A stop request reaches loops and cancels interruptible work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.loop import simulated
from tests.runtime.lifecycle.journal import SECOND, elapsed


@simulated
async def test_work_that_returns_is_not_interrupted() -> None:
    assert not await Stopping().interrupts(asyncio.sleep(1))


@simulated
async def test_work_is_cancelled_when_stopping_is_requested() -> None:
    stopping = Stopping()
    asyncio.get_running_loop().call_later(3, stopping.request)

    assert await stopping.interrupts(asyncio.sleep(3600))

    assert elapsed() == 3 * SECOND


@simulated
async def test_no_work_starts_after_the_request() -> None:
    started: list[bool] = []

    async def work() -> None:
        started.append(True)

    stopping = Stopping()
    stopping.request()
    stopping.request()

    assert await stopping.interrupts(work())

    assert started == []


@simulated
async def test_a_timeout_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await Stopping().interrupts(work())


@simulated
async def test_a_cancellation_from_outside_stays_a_cancellation() -> None:
    task = asyncio.create_task(_await(Stopping().interrupts(asyncio.sleep(3600))))
    await asyncio.sleep(1)

    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()


def test_a_request_reaches_every_child() -> None:
    stopping = Stopping()
    early = stopping.child()

    stopping.request()

    assert early.requested
    assert stopping.child().requested


def test_one_child_can_be_stopped_alone() -> None:
    stopping = Stopping()
    one, other = stopping.child(), stopping.child()

    one.request()

    assert one.requested
    assert not stopping.requested
    assert not other.requested


def test_a_released_child_is_not_stopped() -> None:
    stopping = Stopping()
    child = stopping.child()

    stopping.release(child)
    stopping.release(child)
    stopping.request()

    assert not child.requested


@simulated
async def test_several_waits_are_interrupted_together() -> None:
    stopping = Stopping()
    asyncio.get_running_loop().call_later(3, stopping.request)

    results = await asyncio.gather(*(stopping.interrupts(asyncio.sleep(3600)) for _ in range(3)))

    assert results == [True, True, True]


async def _await(work: Coroutine[Any, Any, bool]) -> bool:
    return await work

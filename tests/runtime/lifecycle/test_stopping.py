"""Loops learn that it is time to stop, and what may be given up is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop as simulated
from tests.runtime.lifecycle.journal import SECOND, elapsed


class TestStopping:
    def test_work_that_ends_by_itself_is_not_interrupted(self) -> None:
        async def scenario() -> bool:
            return await Stopping().interrupts(asyncio.sleep(1))

        assert simulated.run(scenario()) is False

    def test_work_is_given_up_at_the_moment_of_the_request(self) -> None:
        async def scenario() -> timedelta:
            stopping = Stopping()
            asyncio.get_running_loop().call_later(3, stopping.request)
            assert await stopping.interrupts(asyncio.sleep(3600))
            return elapsed()

        assert simulated.run(scenario()) == 3 * SECOND

    def test_after_the_request_no_work_begins(self) -> None:
        began: list[bool] = []

        async def work() -> None:
            began.append(True)

        async def scenario() -> bool:
            stopping = Stopping()
            stopping.request()
            stopping.request()
            return await stopping.interrupts(work())

        assert simulated.run(scenario()) is True
        assert began == []

    def test_a_timeout_of_the_work_is_the_works_own(self) -> None:
        async def work() -> None:
            raise TimeoutError("mine")

        async def scenario() -> None:
            with pytest.raises(TimeoutError, match="mine"):
                await Stopping().interrupts(work())

        simulated.run(scenario())

    def test_cancellation_from_outside_stays_a_cancellation(self) -> None:
        async def scenario() -> None:
            stopping = Stopping()
            task = asyncio.create_task(_swallow_nothing(stopping.interrupts(asyncio.sleep(3600))))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()

        simulated.run(scenario())

    def test_a_request_reaches_the_stopping_of_every_part(self) -> None:
        stopping = Stopping()
        early = stopping.child()

        stopping.request()

        assert early.requested
        assert stopping.child().requested

    def test_one_part_is_asked_to_stop_alone(self) -> None:
        stopping = Stopping()
        one, other = stopping.child(), stopping.child()

        one.request()

        assert one.requested
        assert not stopping.requested
        assert not other.requested

    def test_a_released_part_is_asked_no_more(self) -> None:
        stopping = Stopping()
        child = stopping.child()

        stopping.release(child)
        stopping.release(child)
        stopping.request()

        assert not child.requested

    def test_several_waits_are_interrupted_together(self) -> None:
        async def scenario() -> list[bool]:
            stopping = Stopping()
            asyncio.get_running_loop().call_later(3, stopping.request)
            return await asyncio.gather(*(stopping.interrupts(asyncio.sleep(3600)) for _ in range(3)))

        assert simulated.run(scenario()) == [True, True, True]


async def _swallow_nothing(work: Coroutine[Any, Any, bool]) -> bool:
    return await work

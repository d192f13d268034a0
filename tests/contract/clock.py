"""The contract of every `ports.clock.Clock`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, timedelta
from typing import TypeAlias

from sentinel.ports.clock import Clock

Scenario: TypeAlias = Callable[[Clock], Awaitable[None]]

STEP = timedelta(milliseconds=5)
SLEW = timedelta(milliseconds=1)
"""How far a real wall clock may drift from the monotonic clock in a few milliseconds."""


def on_the_clock(test: Callable[[ClockContract, Clock], Awaitable[None]]) -> Callable[[ClockContract], None]:
    """Decorate a test of the contract: it gets the clock under test, on the loop that belongs to it."""

    def on_its_loop(self: ClockContract) -> None:
        self.run(lambda clock: test(self, clock))

    return on_its_loop


class ClockContract:
    """Subclass it and implement `run` for the clock under test."""

    def run(self, scenario: Scenario) -> None:
        raise NotImplementedError

    @on_the_clock
    async def test_now_is_aware_and_in_utc(self, clock: Clock) -> None:
        assert clock.now().tzinfo is UTC

    @on_the_clock
    async def test_a_sleep_never_returns_early(self, clock: Clock) -> None:
        before = clock.now()

        await clock.sleep(STEP)

        assert clock.now() - before >= STEP - SLEW

    @on_the_clock
    async def test_a_sleep_that_is_not_positive_yields_and_returns(self, clock: Clock) -> None:
        seen: list[str] = []

        async def other() -> None:
            seen.append("other")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(other())
            await clock.sleep(timedelta(0))
            await clock.sleep(timedelta(seconds=-1))
            seen.append("sleeper")

        assert seen == ["other", "sleeper"]

    @on_the_clock
    async def test_sleepers_wake_in_the_order_of_their_times(self, clock: Clock) -> None:
        woken: list[int] = []

        async def sleeper(steps: int) -> None:
            await clock.sleep(STEP * steps)
            woken.append(steps)

        async with asyncio.TaskGroup() as tasks:
            for steps in (3, 1, 2):
                tasks.create_task(sleeper(steps))

        assert woken == [1, 2, 3]

    @on_the_clock
    async def test_a_cancelled_sleep_ends_at_once_and_affects_no_other(self, clock: Clock) -> None:
        start = clock.now()
        async with asyncio.TaskGroup() as tasks:
            long = tasks.create_task(clock.sleep(timedelta(days=1)))
            short = tasks.create_task(clock.sleep(STEP))
            await asyncio.sleep(0)

            long.cancel()

        assert long.cancelled()
        assert short.done()
        assert clock.now() - start < timedelta(days=1)

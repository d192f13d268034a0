"""The clock that tests advance."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sentinel.testing.clock import START, ManualClock
from tests.contract.clock import ClockContract, Scenario

SECOND = timedelta(seconds=1)


class TestManualClock(ClockContract):
    def run(self, scenario: Scenario) -> None:
        async def drive(clock: ManualClock) -> None:
            while True:
                await clock.until_asleep()
                await clock.advance(clock.wake_times[0] - clock.now())

        async def run_scenario() -> None:
            clock = ManualClock()
            async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
                driver = tasks.create_task(drive(clock))
                await scenario(clock)
                driver.cancel()

        asyncio.run(run_scenario())


async def test_time_does_not_advance_by_itself() -> None:
    clock = ManualClock()

    await asyncio.sleep(0)

    assert clock.now() == START


async def test_a_start_in_another_zone_is_converted_to_utc() -> None:
    clock = ManualClock(datetime(2025, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))))

    assert clock.now().isoformat() == "2025-06-01T12:00:00+00:00"
    assert clock.now().tzinfo is UTC


async def test_a_naive_start_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected an aware datetime"):
        ManualClock(datetime(2025, 6, 1))  # the mistake under test


async def test_a_task_that_sleeps_in_a_loop_wakes_at_each_interval() -> None:
    clock = ManualClock()
    seen: list[timedelta] = []

    async def poll() -> None:
        while True:
            await clock.sleep(5 * SECOND)
            seen.append(clock.now() - START)

    async with asyncio.TaskGroup() as tasks:
        poller = tasks.create_task(poll())
        await clock.until_asleep()
        await clock.advance(17 * SECOND)
        poller.cancel()

    assert seen == [5 * SECOND, 10 * SECOND, 15 * SECOND]
    assert clock.now() == START + 17 * SECOND


async def test_until_asleep_waits_for_the_given_number_of_sleepers() -> None:
    clock = ManualClock()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(clock.until_asleep(2))
        first = tasks.create_task(clock.sleep(SECOND))
        await clock.until_asleep(1)
        assert not waiting.done()
        second = tasks.create_task(clock.sleep(2 * SECOND))
        await waiting

        assert clock.wake_times == [START + SECOND, START + 2 * SECOND]
        first.cancel()
        second.cancel()


async def test_a_cancelled_sleeper_is_removed() -> None:
    clock = ManualClock()

    sleeper = asyncio.create_task(clock.sleep(SECOND))
    await clock.until_asleep()
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)

    assert clock.wake_times == []


async def test_advancing_by_a_negative_duration_is_rejected() -> None:
    clock = ManualClock()

    with pytest.raises(ValueError, match="forward only"):
        await clock.advance(-SECOND)

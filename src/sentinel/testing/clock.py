"""A clock that the test advances.

Use it to test code that sleeps, step by step, in an ordinary asynchronous test:

    clock = ManualClock()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(code_under_test(clock))
        await clock.until_asleep()
        await clock.advance(timedelta(seconds=5))

For timeouts, queues and several tasks, or for hours of time, run the whole test on `sentinel.testing.loop`
instead, where time advances automatically.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2025, 1, 1, tzinfo=UTC)
"""The default start of the clocks in this package."""

_TURNS = 20
"""Event loop iterations that a woken sleeper gets before the clock advances further. Enough for a chain of queues,
locks and tasks; the test itself must wait for I/O."""


class ManualClock:
    """A verified fake of `ports.clock.Clock` that only `advance` moves."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start: expected an aware datetime, got {start.isoformat()}")
        self._now = start.astimezone(UTC)
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []
        self._sleeper_added = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, duration: timedelta) -> None:
        if duration <= timedelta(0):
            await asyncio.sleep(0)
            return
        sleeper = (self._now + duration, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._sleeper_added.set()
        try:
            await sleeper[1]
        finally:
            if sleeper in self._sleepers:  # cancelled rather than woken
                self._sleepers.remove(sleeper)

    @property
    def wake_times(self) -> list[datetime]:
        """When the current sleepers wake, earliest first."""
        return sorted(when for when, _ in self._sleepers)

    async def until_asleep(self, count: int = 1) -> None:
        """Wait until at least `count` tasks sleep at the same time."""
        while len(self._sleepers) < count:
            self._sleeper_added.clear()
            await self._sleeper_added.wait()

    async def advance(self, duration: timedelta) -> None:
        """Move time forward, and wake and run each sleeper when its time comes.

        Sleepers with equal times wake in the order in which they went to sleep. A sleeper that sleeps again wakes
        again, if its time is within `duration`.
        """
        if duration < timedelta(0):
            raise ValueError(f"expected a duration of 0 or more, because time moves forward only, got {duration}")
        end = self._now + duration
        while (sleeper := self._next_sleeper(end)) is not None:
            self._sleepers.remove(sleeper)
            self._now, woken = sleeper
            if not woken.done():
                woken.set_result(None)
            await _run_other_tasks()
        self._now = end
        await _run_other_tasks()

    def _next_sleeper(self, end: datetime) -> tuple[datetime, asyncio.Future[None]] | None:
        due = (sleeper for sleeper in self._sleepers if sleeper[0] <= end)
        return min(due, key=lambda sleeper: sleeper[0], default=None)


async def _run_other_tasks() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)

"""A clock that stands still until the test moves it.

For testing one piece of code that sleeps, step by step, inside an ordinary asynchronous test:

    clock = ManualClock()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(code_under_test(clock))
        await clock.until_asleep()
        await clock.advance(timedelta(seconds=5))

Where timeouts, queues and several tasks play together, or where hours pass, run the whole scenario on
`sentinel.testing.loop` instead: there time moves by itself, and nothing has to be told to.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2025, 1, 1, tzinfo=UTC)
"""Where the clocks of this package begin unless told otherwise."""

_TURNS = 20
"""How many turns of the event loop a woken sleeper gets before the clock moves on. Enough for a chain of
queues, locks and tasks; what waits for I/O has to be waited for by the test."""


class ManualClock:
    """A verified fake of `ports.Clock`, moved by `advance` alone."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start: expected an aware datetime, got {start.isoformat()}")
        self._now = start.astimezone(UTC)
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []
        self._somebody_lay_down = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, duration: timedelta) -> None:
        if duration <= timedelta(0):
            await asyncio.sleep(0)
            return
        sleeper = (self._now + duration, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._somebody_lay_down.set()
        try:
            await sleeper[1]
        finally:
            if sleeper in self._sleepers:  # cancelled rather than woken
                self._sleepers.remove(sleeper)

    @property
    def wake_times(self) -> list[datetime]:
        """When the present sleepers will wake, the earliest first."""
        return sorted(when for when, _ in self._sleepers)

    async def until_asleep(self, count: int = 1) -> None:
        """Waits until at least `count` sleepers sleep at the same time."""
        while len(self._sleepers) < count:
            self._somebody_lay_down.clear()
            await self._somebody_lay_down.wait()

    async def advance(self, duration: timedelta) -> None:
        """Moves time forward, stopping at each sleeper on the way to wake it and let it run.

        Sleepers wake in the order of their times, those of one moment in the order in which they lay down.
        One that goes back to sleep for less than what remains is woken again.
        """
        if duration < timedelta(0):
            raise ValueError(f"time moves forward only, got {duration}")
        end = self._now + duration
        while (sleeper := self._next_sleeper(end)) is not None:
            self._sleepers.remove(sleeper)
            self._now, woken = sleeper
            if not woken.done():
                woken.set_result(None)
            await _let_others_run()
        self._now = end
        await _let_others_run()

    def _next_sleeper(self, end: datetime) -> tuple[datetime, asyncio.Future[None]] | None:
        due = (sleeper for sleeper in self._sleepers if sleeper[0] <= end)
        return min(due, key=lambda sleeper: sleeper[0], default=None)


async def _let_others_run() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)

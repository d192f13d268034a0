"""The time of a real event loop, which a test can advance.

A timeout that a test waits for in real time has to be short, and then a machine that stalls lets it elapse too
early. With this, the timeout is an hour, and the hour passes when the test says so:

    loop_time = LoopTime()
    fetching = asyncio.create_task(client.get(timeout=HOUR))
    await server.received.wait()
    loop_time.advance(HOUR)

Unlike that of `sentinel.testing.loop`, the loop has sockets and threads. All its timers are advanced, those of
the test too: a hang limit must not span the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

HOUR = timedelta(hours=1)
"""Longer than any test may take."""
_A_MOMENT = 0.01


class LoopTime:
    """The time of the running event loop, from now on."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._own_time: Callable[[], float] = loop.time
        self.advanced = timedelta(0)
        """How far it is ahead of real time."""
        loop.time = self._time  # type: ignore[method-assign]  # asyncio has no other way

    def advance(self, duration: timedelta = HOUR) -> None:
        """Let all timers elapse that are set for less than this from now."""
        self.advanced += duration

    async def advance_until(self, is_true: Callable[[], object], *, step: timedelta = HOUR) -> None:
        """Advance step by step until a claim holds, for timers that are set at a time the test cannot know."""
        while not is_true():
            self.advance(step)
            await asyncio.sleep(_A_MOMENT)

    def _time(self) -> float:
        return self._own_time() + self.advanced.total_seconds()

"""Notices that an event loop stands still.

A task that blocks the loop blocks everything in the process: no event is received, no report is sent, no timeout
fires. Nothing on that loop can notice it, so the watch runs on the loop of another thread. It asks the watched
loop to run a callback and measures how long the answer takes.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import PurePath
from time import monotonic

from sentinel.runtime import durations
from sentinel.runtime.log import Log

MAX_STALL = timedelta(seconds=10)
_INTERVAL = timedelta(milliseconds=500)
_SECOND = timedelta(seconds=1)
_MAX_FRAMES = 30
"""Enough to reach the task through the frames of a library."""


class LoopWatch:
    """Watches the running loop of the thread that creates it."""

    def __init__(
        self,
        *,
        log: Log,
        max_stall: timedelta = MAX_STALL,
        interval: timedelta = _INTERVAL,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`interval` is the time between two questions."""
        self._watched = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._log = log
        self._max_stall = max_stall
        self._interval = interval
        self._now = now
        self._asked: float | None = None
        """When the question was asked that has no answer yet."""
        self._is_logged = False

    def problem(self) -> str | None:
        """Return since when the loop stands still if that is too long, else None. A health check."""
        stall = self._stall()
        if stall < self._max_stall:
            return None
        return (
            f"the event loop has stood still for {durations.render(stall // _SECOND * _SECOND)}: "
            "a task or a library blocks it; see event_loop.blocked in the log"
        )

    async def run(self) -> None:
        """Watch until cancelled. Call it on another loop."""
        while True:
            self.check()
            await asyncio.sleep(self._interval.total_seconds())

    def check(self) -> None:
        """Ask the loop, or log once that it has not answered the last question for too long."""
        if self._asked is None:
            self._asked = self._now()
            with suppress(RuntimeError):  # the loop is closed
                self._watched.call_soon_threadsafe(self._answer)
        elif not self._is_logged and self._stall() >= self._max_stall:
            self._is_logged = True
            self._log.error("event_loop.blocked", seconds=self._stall(), stack=self._stack())

    def _answer(self) -> None:
        """Runs on the watched loop."""
        stall, was_logged = self._stall(), self._is_logged
        self._asked, self._is_logged = None, False
        if was_logged:
            self._log.warning("event_loop.resumed", seconds=stall)

    def _stall(self) -> timedelta:
        asked = self._asked
        return timedelta(0) if asked is None else timedelta(seconds=self._now() - asked)

    def _stack(self) -> list[str]:
        """Where the loop's thread is now, innermost last. Without values, which may be secrets."""
        frame = sys._current_frames().get(self._thread)
        summary = [] if frame is None else traceback.extract_stack(frame)[-_MAX_FRAMES:]
        return [f"{PurePath(entry.filename).name}:{entry.lineno} {entry.name}" for entry in summary]

"""The live view of `sentinel up`: a screen, drawn anew a few times a second, and what is logged meanwhile."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.screen import draw
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.cli.up.welcome import Hint
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import Health, HealthStatus

_FRAME = timedelta(milliseconds=250)
_HELD_LINES = 500


class LiveView:
    """Draws until it is told to stop, on a screen of its own that gives the terminal back as it was."""

    def __init__(
        self,
        *,
        board: DashboardState,
        clock: Clock,
        title: str,
        hints: Sequence[Hint],
        health: Health,
        console: Console,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """While the terminal has no room for another picture, none is drawn."""
        self._board = board
        self._clock = clock
        self._title = title
        self._hints = hints
        self._health = health
        self._console = console
        self._has_room = has_room

    async def run(self, stopping: Stopping) -> None:
        with Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while True:
                if self._has_room():
                    live.update(self._draw(), refresh=True)
                if await stopping.interrupts(asyncio.sleep(_FRAME.total_seconds())):
                    return

    def _draw(self) -> RenderableType:
        width, height = self._console.size
        return draw(
            self._board,
            now=self._clock.now(),
            title=self._title,
            hints=self._hints,
            troubles=_troubles(self._health),
            width=width,
            height=height,
        )


def console_on(outlet: StdoutQueue) -> Console:
    """The terminal, for somebody who must not wait for it."""
    return Console(file=_Terminal(outlet), highlight=False)


class _Terminal(io.StringIO):
    def __init__(self, outlet: StdoutQueue) -> None:
        super().__init__()
        self._outlet = outlet

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._outlet.write(text)
        return len(text)


class HeldLog(io.StringIO):
    """Takes log lines while the screen belongs to the view; the latest of them are written when it is over."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._lines: deque[str] = deque(maxlen=_HELD_LINES)

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._lines.append(text)
        return len(text)

    def release(self) -> None:
        """Writes them, if there still is a terminal."""
        with suppress(OSError):
            self._terminal.writelines(self._lines)
            self._terminal.flush()


def _troubles(health: Health) -> list[str]:
    checks = health.readiness().checks
    return [f"{name}: {check.message}" for name, check in checks.items() if check.status is HealthStatus.ERROR]

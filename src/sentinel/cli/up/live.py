"""The live view of `sentinel up`: a full screen, redrawn a few times a second, and a buffer for log lines."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.live import Live

from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.screen import draw
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.cli.up.welcome import ExampleCommand
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import Health, HealthStatus

_FRAME_INTERVAL = timedelta(milliseconds=250)
_MAX_LOG_LINES = 500


async def run_live_view(
    stopping: Stopping,
    *,
    dashboard: DashboardState,
    clock: Clock,
    title: str,
    examples: Sequence[ExampleCommand],
    health: Health,
    console: Console,
    is_idle: Callable[[], bool] = lambda: True,
) -> None:
    """Draw on the terminal's alternate screen until stopped.

    Frames are skipped while `is_idle` is false: the terminal has not taken the last one yet.
    """
    with Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        while True:
            if is_idle():
                width, height = console.size
                frame = draw(
                    dashboard,
                    now=clock.now(),
                    title=title,
                    examples=examples,
                    errors=_failed_checks(health),
                    width=width,
                    height=height,
                )
                live.update(frame, refresh=True)
            if await stopping.interrupts(asyncio.sleep(_FRAME_INTERVAL.total_seconds())):
                return


def console_on(stdout: StdoutQueue) -> Console:
    """Return a console that writes to the queue, so that drawing never blocks."""
    return Console(file=_QueueStream(stdout), highlight=False)


class _QueueStream(io.StringIO):
    def __init__(self, stdout: StdoutQueue) -> None:
        super().__init__()
        self._stdout = stdout

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._stdout.write(text)
        return len(text)


class LogBuffer(io.StringIO):
    """A buffer for the latest log lines while the live view has the screen."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._lines: deque[str] = deque(maxlen=_MAX_LOG_LINES)

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._lines.append(text)
        return len(text)

    def write_to_terminal(self) -> None:
        """Write the lines to the terminal, unless it is gone."""
        with suppress(OSError):
            self._terminal.writelines(self._lines)
            self._terminal.flush()


def _failed_checks(health: Health) -> list[str]:
    checks = health.readiness().checks
    return [f"{name}: {check.message}" for name, check in checks.items() if check.status is HealthStatus.ERROR]

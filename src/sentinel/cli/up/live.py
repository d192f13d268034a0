"""The live view of `sentinel up`: a full screen, redrawn a few times a second, and a buffer for log lines."""

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
from sentinel.cli.up.welcome import ExampleCommand
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import Health, HealthStatus

_FRAME_INTERVAL = timedelta(milliseconds=250)
_MAX_LOG_LINES = 500


class LiveView:
    """Draws on the terminal's alternate screen until stopped."""

    def __init__(
        self,
        *,
        dashboard: DashboardState,
        clock: Clock,
        title: str,
        examples: Sequence[ExampleCommand],
        health: Health,
        console: Console,
        is_idle: Callable[[], bool] = lambda: True,
    ) -> None:
        """Skip frames while `is_idle` is false: the terminal has not taken the last one yet."""
        self._dashboard = dashboard
        self._clock = clock
        self._title = title
        self._examples = examples
        self._health = health
        self._console = console
        self._is_idle = is_idle

    async def run(self, stopping: Stopping) -> None:
        with Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while True:
                if self._is_idle():
                    live.update(self._draw(), refresh=True)
                if await stopping.interrupts(asyncio.sleep(_FRAME_INTERVAL.total_seconds())):
                    return

    def _draw(self) -> RenderableType:
        width, height = self._console.size
        return draw(
            self._dashboard,
            now=self._clock.now(),
            title=self._title,
            examples=self._examples,
            errors=_failed_checks(self._health),
            width=width,
            height=height,
        )


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
    """Holds the latest log lines while the live view has the screen."""

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

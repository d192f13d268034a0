"""Shows a deployment while it goes on: a view that is redrawn on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from sentinel.cli.hub.deployment_progress import Progress, changes
from sentinel.cli.hub.deployment_view import Line, draw
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.runtime.settings.report import printable

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


def _now() -> datetime:
    return datetime.now(UTC)


class LineLog:
    """Prints what has changed, for files and for people who read without a terminal."""

    def __init__(self, stream: TextIO, *, now: Callable[[], datetime] = _now) -> None:
        self._stream = stream
        self._now = now
        self._shown: Progress | None = None
        self._problem = ""

    def show(self, progress: Progress, problem: str) -> None:
        if problem and problem != self._problem:
            self._print(problem)
        self._problem = problem
        for line in changes(self._shown, progress):
            self._print(line)
        self._shown = progress

    def close(self) -> None:
        """Nothing is left open."""

    def _print(self, text: str) -> None:
        self._stream.write(f"{self._now().astimezone():%H:%M:%S} {printable(text)}\n")
        self._stream.flush()


class LiveView:
    """Draws on the lines below the prompt, again and again. The last frame stays."""

    def __init__(
        self,
        stream: TextIO,
        *,
        now: Callable[[], datetime] = _now,
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self._stream = stream
        self._now = now
        self._size = size
        self._height = 0
        """Lines of the last frame."""

    def show(self, progress: Progress, problem: str) -> None:
        width, height = self._size()
        hint = "" if progress.is_over else _hint(progress)
        frame = draw(progress, now=self._now(), height=height - 1, problem=problem, hint=hint)
        # The last frame stays, so its lines may be long: they say what went wrong.
        self._paint(frame[: height - 1], None if progress.is_over else width - 1)

    def close(self) -> None:
        if self._height:
            self._stream.write(_SHOW_CURSOR)
            self._stream.flush()

    def _paint(self, frame: Sequence[Line], width: int | None) -> None:
        lines = [f"{line.render(width=width, is_colored=True)}{_CLEAR_LINE}\n" for line in frame]
        back = f"\x1b[{self._height}F" if self._height else _HIDE_CURSOR
        self._stream.write("".join([back, *lines, _CLEAR_BELOW]))
        self._stream.flush()
        self._height = len(lines)


Screen = LineLog | LiveView


def screen(*, to_stderr: bool = False) -> Screen:
    """Return the screen for this process. Progress goes to stderr where stdout is for data."""
    stream = sys.stderr if to_stderr else sys.stdout
    return LiveView(stream) if stream.isatty() else LineLog(stream)


def _hint(progress: Progress) -> str:
    found = progress.deployment
    command = "sentinel hub deployments"
    if found.state is RolloutState.PAUSED:
        return f"it waits for you: {command} resume|promote|abort|rollback {found.id}"
    return "Ctrl-C ends this view; the deployment goes on"

"""Polling until the server reports that something is done, with progress on stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from sentinel.drivers.rest.errors import ServerError
from sentinel.runtime.settings.report import printable

_MIN_INTERVAL, _MAX_INTERVAL = timedelta(milliseconds=50), timedelta(seconds=1)
"""The interval doubles, so that quick changes show at once and slow ones cost few requests."""


class WaitProgress(msgspec.Struct, frozen=True):
    """The result of one poll."""

    is_done: bool = False
    text: str = ""
    """What is still missing."""


async def poll_until_done(poll: Callable[[], Awaitable[WaitProgress]], *, timeout: timedelta) -> WaitProgress:
    """Poll until done or until the timeout, and return the last progress. Temporary errors are retried."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout.total_seconds()
    progress_line = _ProgressLine()
    interval = _MIN_INTERVAL
    while True:
        try:
            progress = await poll()
        except ServerError as error:
            if not error.is_retryable:
                raise
            progress = WaitProgress(text=str(error))
        left = deadline - loop.time()
        if progress.is_done or left <= 0:
            progress_line.clear()
            return progress
        progress_line.show(progress.text)
        await asyncio.sleep(min(interval.total_seconds(), left))
        interval = min(interval * 2, _MAX_INTERVAL)


class _ProgressLine:
    """Progress on stderr: one line that is overwritten on a terminal, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        text = printable(text)
        if text == self._shown:
            return
        if self._is_terminal:
            self._stream.write(f"\r{text.ljust(len(self._shown))}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._shown = text

    def clear(self) -> None:
        if self._is_terminal and self._shown:
            self._stream.write(f"\r{' ' * len(self._shown)}\r")
            self._stream.flush()

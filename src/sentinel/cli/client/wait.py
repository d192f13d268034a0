"""Waiting for something that the server will tell when asked, and saying so meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from sentinel.drivers.rest.errors import ServerError
from sentinel.runtime.settings.report import printable

_FIRST, _LONGEST = timedelta(milliseconds=50), timedelta(seconds=1)
"""Between two looks: what is quick is noticed at once, what is slow is not asked about all the time."""


class WaitProgress(msgspec.Struct, frozen=True):
    """How far it has come."""

    is_done: bool = False
    text: str = ""
    """What is still waited for."""


async def until(look: Callable[[], Awaitable[WaitProgress]], *, timeout: timedelta) -> WaitProgress:
    """Looks until it is done, or time is up; what was seen last. A server that is away meanwhile is waited for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout.total_seconds()
    told = _Narrator()
    pause = _FIRST
    while True:
        try:
            progress = await look()
        except ServerError as error:
            if not error.is_retryable:
                raise
            progress = WaitProgress(text=str(error))
        left = deadline - loop.time()
        if progress.is_done or left <= 0:
            told.end()
            return progress
        told.say(progress.text)
        await asyncio.sleep(min(pause.total_seconds(), left))
        pause = min(pause * 2, _LONGEST)


class _Narrator:
    """Says what is waited for: on a terminal on one line that changes, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._said = ""

    def say(self, text: str) -> None:
        text = printable(text)
        if text == self._said:
            return
        if self._is_terminal:
            self._stream.write(f"\r{text.ljust(len(self._said))}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._said = text

    def end(self) -> None:
        if self._is_terminal and self._said:
            self._stream.write(f"\r{' ' * len(self._said)}\r")
            self._stream.flush()

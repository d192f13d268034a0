"""A file of credentials that is reloaded when it changes, so that a new token needs no restart of a server.

If the file becomes invalid or is deleted, the last valid content stays in force: a typo must not lock out every
client. The problem is logged once per state of the file, without the file's content.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.log import Log

T = TypeVar("T")

_CHECK_INTERVAL = timedelta(seconds=1)

_State: TypeAlias = "tuple[int, int, int] | str"


class WatchedFile(Generic[T]):
    """The parsed content of a file, at most about a second old."""

    def __init__(
        self,
        path: Path,
        load: Callable[[Path], T],
        *,
        log: Log,
        event: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the file. Raises the `Misconfigured` of `load`; later errors are logged as `event`."""
        self._path = path
        self._load = load
        self._log = log
        self._event = event
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._state = _state(path)
        self._value = load(path)

    def get(self) -> T:
        """Return the value. Checks the file at most once a second, and reads it only if it has changed."""
        now = self._monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL.total_seconds():
            self._checked_at = now
            self._reload_if_changed()
        return self._value

    def _reload_if_changed(self) -> None:
        # Read before the content: a write in between then shows as a change at the next check.
        state = _state(self._path)
        if state == self._state:
            return
        self._state = state
        try:
            self._value = self._load(self._path)
        except Misconfigured as error:
            self._log.warning(self._event, problem=str(error))


def _state(path: Path) -> _State:
    try:
        stat = os.stat(path)  # noqa: PTH116  # Path.stat costs twice as much, and requests wait for this
    except OSError as error:
        return error.strerror or "unreadable"
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)

"""Files of credentials that are reloaded when they change, so that a new token needs no restart of a server.

If a file becomes invalid or is deleted, the last valid content stays in force: a typo must not lock out every
client. The problem is logged once per state of the files, without their content.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.log import Log

T = TypeVar("T")

_CHECK_INTERVAL = timedelta(seconds=1)

_State: TypeAlias = "tuple[int, int, int] | str"


class WatchedFiles(Generic[T]):
    """What several files contain together, at most about a second old. Threads may share it."""

    def __init__(
        self,
        paths: Sequence[Path],
        load: Callable[[], T],
        *,
        log: Log,
        event: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the files. Raises the `Misconfigured` of `load`; later errors are logged as `event`."""
        self._paths = paths
        self._load = load
        self._log = log
        self._event = event
        self._monotonic = monotonic
        self._reloading = threading.Lock()
        self._checked_at = monotonic()
        self._states = self._read_states()
        self._is_unreadable = False
        self._value = load()

    def get(self) -> T:
        """Return the value. Checks the files at most once a second, and reads them only if one has changed."""
        now = self._monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL.total_seconds():
            # Other threads go on with the present value meanwhile.
            self._checked_at = now
            with self._reloading:
                self._reload_if_changed()
        return self._value

    def _reload_if_changed(self) -> None:
        # Read before the content: a write in between then shows as a change at the next check.
        states = self._read_states()
        is_same = states == self._states
        if is_same and not self._is_unreadable:
            return
        self._states = states
        try:
            self._value = self._load()
        except Misconfigured as error:
            # Try again if a file could not be opened: its mode, or the limit of open files, may change unnoticed.
            self._is_unreadable = isinstance(error.__cause__, OSError)
            if not is_same:
                self._log.warning(self._event, problem=str(error))
        else:
            self._is_unreadable = False

    def _read_states(self) -> list[_State]:
        return [_state(path) for path in self._paths]


class WatchedFile(WatchedFiles[T]):
    """The parsed content of one file."""

    def __init__(
        self,
        path: Path,
        load: Callable[[Path], T],
        *,
        log: Log,
        event: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__([path], lambda: load(path), log=log, event=event, monotonic=monotonic)


def _state(path: Path) -> _State:
    try:
        stat = os.stat(path)  # noqa: PTH116  # Path.stat costs twice as much, and requests wait for this
    except OSError as error:
        return error.strerror or "unreadable"
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)

"""A file that is read again when it changes, as the files of credentials are: a token is added or revoked while
the server runs, and nobody restarts it for that.

What was read last keeps holding while the file is broken or gone: a slip in an editor must not lock everybody
out. It is said once for each state of the file, and never with what the file contains.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from sentinel.ports.errors import Misconfigured

T = TypeVar("T")

_LOOK_EVERY = timedelta(seconds=1)

_State: TypeAlias = "tuple[int, int, int] | str"


class WatchedFile(Generic[T]):
    """What a file says, as of a second ago."""

    def __init__(
        self,
        path: Path,
        load: Callable[[Path], T],
        *,
        on_trouble: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Loads the file. Raises the `Misconfigured` of `load`; later ones go to `on_trouble`."""
        self._path = path
        self._load = load
        self._on_trouble = on_trouble
        self._monotonic = monotonic
        self._looked = monotonic()
        self._state = _state(path)
        self._value = load(path)

    def get(self) -> T:
        """The value; it looks at the file at most once a second, and reads it only where it has changed."""
        now = self._monotonic()
        if now - self._looked >= _LOOK_EVERY.total_seconds():
            self._looked = now
            self._look()
        return self._value

    def _look(self) -> None:
        # Taken before the file is read: what is written meanwhile makes a difference the next time.
        state = _state(self._path)
        if state == self._state:
            return
        self._state = state
        try:
            self._value = self._load(self._path)
        except Misconfigured as error:
            self._on_trouble(str(error))


def _state(path: Path) -> _State:
    try:
        seen = os.stat(path)  # noqa: PTH116  # Path.stat costs twice as much, and this is on the way of requests
    except OSError as error:
        return error.strerror or "unreadable"
    return (seen.st_mtime_ns, seen.st_size, seen.st_ino)

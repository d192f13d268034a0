"""The ready file: where everything is, for a script that waits until it may begin.

It stands for one run. So it is touched only by the process that has the database to itself: one that is refused,
because another is up already, must not take that one's file away.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

_OPEN, _OURS = 0o644, 0o600


class Ready(msgspec.Struct, frozen=True):
    """What the file says."""

    http: str
    grpc: str | None = None
    token: str | None = None


class ReadyFile:
    """There while everything serves."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def try_out(self) -> None:
        """Raises `OSError` where nothing can be written there; an earlier file is left as it is."""
        if not self._path.name or self._path.is_dir():
            raise IsADirectoryError(None, "expected a file, got a folder")
        self._write(b"", _OURS).unlink()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """For as long as the run lasts: one of an earlier run would say that this one is ready."""
        self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._path.unlink(missing_ok=True)

    def announce(self, ready: Ready) -> None:
        """At once, and for the owner's eyes only where there is a token in it."""
        mode = _OPEN if ready.token is None else _OURS
        self._write(msgspec.json.encode(ready) + b"\n", mode).replace(self._path)

    def _write(self, content: bytes, mode: int) -> Path:
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        unfinished.unlink(missing_ok=True)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as writing:
            writing.write(content)
        return unfinished

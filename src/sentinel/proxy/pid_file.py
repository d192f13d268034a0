"""The file that tells others which process to send signals to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sentinel.ports.errors import Misconfigured


class PidFile:
    """Written at start, removed at the end unless another process has replaced it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = f"{os.getpid()}\n"

    def write(self) -> None:
        """Raises `Misconfigured` if that fails. A reader never sees half a number."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.write_text(self._text)
            draft.replace(self._path)
        except OSError as error:
            raise Misconfigured(f"pid-file {self._path}: {error.strerror or error}") from error

    def remove(self) -> None:
        with suppress(OSError):
            if self._path.read_text() == self._text:
                self._path.unlink()

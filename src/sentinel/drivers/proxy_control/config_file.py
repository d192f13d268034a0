"""The proxy's configuration file: replaced at once, with a copy of the file before beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sentinel.ports.proxy_control import ConfigFile, ProxyFailure
from sentinel.runtime import atomic_file

MAX_BYTES: Final = 8 * 1024 * 1024
"""More than a version can have with its paths. Something else is not read whole."""
_NEW_FILE_MODE: Final = 0o644


class ConfigPath:
    """Where the proxy's file is. Its mode and its owner are kept, and a symbolic link stays one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(f"{path.name}.bak")
        self.candidate = path.with_name(f"{path.name}.candidate")

    def read(self) -> ConfigFile:
        """Read the file."""
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            modified = datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return ConfigFile()
        except OSError as error:
            return ConfigFile(problem=_reason(error))
        if len(content) > MAX_BYTES:
            return ConfigFile(modified=modified, problem=f"expected at most {MAX_BYTES >> 20} MiB")
        # Bytes that are not UTF-8 are someone's change, and make another hash.
        return ConfigFile(text=content.decode(errors="surrogateescape"), modified=modified)

    @contextmanager
    def candidate_file(self, text: str) -> Iterator[Path]:
        """Write a text beside the file, where relative paths in it mean the same, and remove it afterwards."""
        try:
            self._write(self.candidate, text.encode())
        except OSError as error:
            raise ProxyFailure(f"cannot write {self.candidate}: {_reason(error)}") from error
        try:
            yield self.candidate
        finally:
            self.candidate.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        """Keep a copy and replace the file. Raises `ProxyFailure`; then the file is unchanged."""
        path = self.backup
        try:
            if self.path.exists():
                self._write(path, self.path.read_bytes())
                _copy_time(self.path, path)
            path = self.path
            self._write(path, text.encode())
        except OSError as error:
            raise ProxyFailure(f"cannot write {path}: {_reason(error)}") from error

    def read_copy(self) -> str | None:
        """Return the copy, if there is one that can be read."""
        return ConfigPath(self.backup).read().text

    def restore(self, text: str | None) -> None:
        """Replace the file, and not the copy, or remove it.

        A file that is put back keeps its time: if someone had changed it by hand, people ask since when. Without
        space for another file, the copy itself becomes the file.
        """
        try:
            if text is None:
                self.path.unlink(missing_ok=True)
            else:
                self._write_back(text, is_copy=self.read_copy() == text)
        except OSError as error:
            raise ProxyFailure(f"cannot restore {self.path}: {_reason(error)}") from error

    def _write_back(self, text: str, *, is_copy: bool) -> None:
        try:
            self._write(self.path, _encoded(text))
        except OSError:
            if not is_copy or not self._move_copy():
                raise
        else:
            if is_copy:
                _copy_time(self.backup, self.path)

    def _move_copy(self) -> bool:
        try:
            atomic_file.move(self.backup, self.path)
        except OSError:
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except FileNotFoundError:
            mode = _NEW_FILE_MODE
        atomic_file.write(path, content, mode=mode, is_exact_mode=True, is_only_writer=True, owner_of=self.path)


def _copy_time(source: Path, target: Path) -> None:
    with suppress(OSError):
        of_source = source.stat()
        os.utime(target, ns=(of_source.st_atime_ns, of_source.st_mtime_ns))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()

"""The folder in which an agent keeps its state.

    instance_id     the id of the instance, if none is configured
    state.json      what it remembers
    applied.kdl     the text of the version that was applied last
    secrets/        a file for each value of a secret, and a link to the one that is used

Every file is replaced atomically. A value of a secret has a file of its own, so that going back to the version
before needs nothing but its links.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sentinel.core.agent.state import AgentState
from sentinel.ports.state_dir import StateDirFailure
from sentinel.runtime import atomic_file
from sentinel.runtime.blocking import run_in_thread
from sentinel.runtime.log import Log

_PRIVATE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
_MAX_STATE: Final = 16 * 1024 * 1024
_MAX_TEXT: Final = 8 * 1024 * 1024
_MAX_ID: Final = 1024
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
_ID = re.compile(r"[A-Za-z0-9._~-]{1,200}")

T = TypeVar("T")


class FolderState:
    """Implements `ports.state_dir.StateDir` in a folder."""

    def __init__(self, folder: Path, *, log: Log) -> None:
        self._folder = folder
        self._state = folder / "state.json"
        self._applied = folder / "applied.kdl"
        self._secrets = folder / "secrets"
        self._log = log

    def instance_id(self) -> str:
        file = self._folder / "instance_id"
        try:
            text = _read(file, _MAX_ID).decode(errors="replace").strip()
            if _ID.fullmatch(text):
                return text
            self._log.warning("state.damaged", file=str(file))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure("read", file, error) from error
        made = str(uuid.uuid4())
        try:
            self._make(self._folder)
            atomic_file.write(file, f"{made}\n".encode(), mode=_PRIVATE, is_only_writer=True)
        except OSError as error:
            raise _failure("write", file, error) from error
        return made

    async def load(self) -> AgentState:
        return await _in_thread(self._load)

    async def save(self, state: AgentState) -> None:
        content = msgspec.json.encode(state)
        await _in_thread(lambda: self._write(self._state, content))

    async def load_applied(self) -> str | None:
        try:
            return await _in_thread(lambda: _read(self._applied, _MAX_TEXT).decode())
        except (OSError, UnicodeDecodeError):
            return None

    async def save_applied(self, text: str) -> None:
        await _in_thread(lambda: self._write(self._applied, text.encode()))

    async def put_secrets(self, values: Mapping[str, bytes]) -> Mapping[str, str]:
        return await _in_thread(lambda: {name: self._put(name, value) for name, value in values.items()})

    async def use_secrets(self, files: Mapping[str, str]) -> None:
        def link_all() -> None:
            for reference, file in files.items():
                link = Path(self.stable_path(reference))
                try:
                    _link(link, Path(file).name)
                except OSError as error:
                    raise _failure("write", link, error) from error

        await _in_thread(link_all)

    def stable_path(self, reference: str) -> str:
        return str(self._secrets / _file_name(reference))

    async def forget_secrets(self, keep: Mapping[str, str]) -> None:
        kept = {Path(file).name for file in keep.values()} | {_file_name(reference) for reference in keep}

        def forget() -> None:
            try:
                for file in self._secrets.iterdir():
                    if file.name not in kept:
                        file.unlink()
            except OSError as error:
                self._log.debug("secrets.kept", reason=error.strerror)

        await _in_thread(forget)

    def _load(self) -> AgentState:
        try:
            content = _read(self._state, _MAX_STATE)
        except FileNotFoundError:
            return AgentState()
        except OSError as error:
            raise _failure("read", self._state, error) from error
        try:
            return msgspec.json.decode(content, type=AgentState)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The state is lost. The hub asks again, and the file that the proxy reads stays as it is.
            self._log.warning("state.damaged", file=str(self._state), reason=str(error))
            return AgentState()

    def _put(self, reference: str, value: bytes) -> str:
        digest = hashlib.sha256(value).hexdigest()[:16]
        file = self._secrets / f"{_file_name(reference)}.{digest}"
        try:
            self._make(self._folder)
            self._make(self._secrets)
            if not file.exists() or file.read_bytes() != value:
                atomic_file.write(file, value, mode=_PRIVATE, is_exact_mode=True)
        except OSError as error:
            raise _failure("write", file, error) from error
        return str(file)

    def _write(self, file: Path, content: bytes) -> None:
        try:
            self._make(self._folder)
            atomic_file.write(file, content, mode=_PRIVATE, is_only_writer=True)
        except OSError as error:
            raise _failure("write", file, error) from error

    def _make(self, folder: Path) -> None:
        folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)


def _file_name(reference: str) -> str:
    """Return the name of a secret's file: readable, and another one for each reference."""
    readable = _UNUSUAL.sub("-", reference)[:80]
    return f"{readable}-{hashlib.sha256(reference.encode()).hexdigest()[:8]}"


def _link(link: Path, target: str) -> None:
    """Point a link to a file, atomically. One that already does is left alone, which works on a full disk."""
    if link.is_symlink() and link.readlink() == Path(target):
        return
    draft = link.with_name(f".{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)


def _read(file: Path, limit: int) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"expected at most {limit} bytes")
    return content


def _failure(verb: str, file: Path, error: OSError) -> StateDirFailure:
    return StateDirFailure(f"cannot {verb} {file}: {(error.strerror or str(error)).lower()}")


async def _in_thread(function: Callable[[], T]) -> T:
    return await run_in_thread(function, name="state")

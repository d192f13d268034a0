"""The data directory of `sentinel up`: what it keeps from one start to the next.

    fleet.db        the fleet, unless another database was asked for
    tokens.yaml     the hashes of the tokens that the API accepts
    tokens/         the tokens of the parts themselves, a file each
    admin-token     for people, where the API can be reached from other machines
    up.lock         held by the process that lives here

Everything in it is for its owner's eyes only. Parts authenticate with tokens like anybody else, so that one which
does what its role forbids fails here, and not first in production.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sentinel.core.access import Role
from sentinel.drivers.identity import token_editing, tokens_file
from sentinel.ports.errors import Misconfigured

_FOLDER, _FILE = 0o700, 0o600
_LONGEST_TOKEN = 1024


class UnusableDataDir(Exception):
    """The data directory will not do; the text says why."""


class Kept(msgspec.Struct, frozen=True):
    """A token, and where it is kept."""

    token: str
    file: Path

    def __repr__(self) -> str:
        return f"Kept(file={self.file})"


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where programs of this user keep their data, whatever the working directory is."""
    data = environ.get("XDG_DATA_HOME", "")
    root = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return root / "sentinel"


class DataDir:
    """A data directory. Nothing is written to it before it is occupied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Lives in it, alone; makes it where it does not exist. Raises `UnusableDataDir`."""
        try:
            # A folder that exists keeps its mode: it may be somebody's own, with other things in it.
            self.folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
            self._tokens.mkdir(mode=_FOLDER, exist_ok=True)
            lock = os.open(self.folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE)
        except OSError as error:
            raise _uninhabitable(self.folder, error) from error
        try:
            self._take(lock)
            yield
        finally:
            os.close(lock)

    @property
    def database_url(self) -> str:
        """Of the embedded database."""
        return f"sqlite:///{self.folder / 'fleet.db'}"

    @property
    def tokens_file(self) -> Path:
        """For the API's server."""
        return self.folder / "tokens.yaml"

    def part_token(self, name: str, *, role: Role, adapter: str = "") -> Kept:
        """The token of a part, made at its first start."""
        return self._keep(self._tokens / name, name=name, role=role, adapter=adapter)

    def admin_token(self) -> Kept:
        """The token for people, made when it is first needed."""
        return self._keep(self.folder / "admin-token", name="admin", role=Role.ADMIN, adapter="")

    def was_shown(self, kept: Kept) -> bool:
        """Whether this very token has been shown to somebody."""
        return self._read(_mark(kept)) == tokens_file.digest_of(kept.token)

    def mark_shown(self, kept: Kept) -> None:
        """Remembers that it has been. Raises `UnusableDataDir`."""
        try:
            _write(_mark(kept), tokens_file.digest_of(kept.token))
        except OSError as error:
            raise _uninhabitable(kept.file, error) from error

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens"

    def _take(self, lock: int) -> None:
        """The database has a lock of its own; but it may lie elsewhere, while the tokens are here."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnusableDataDir(f"{self.folder} is in use by another process; stop that one first") from error
        except OSError as error:
            raise _uninhabitable(self.folder, error) from error

    def _keep(self, file: Path, *, name: str, role: Role, adapter: str) -> Kept:
        """What is in the file, if the API would still accept it as this; otherwise a new one."""
        try:
            known = self._read(file)
            if known and self._is_accepted(known, name=name, role=role, adapter=adapter):
                file.chmod(_FILE)
                return Kept(known, file)
            made = token_editing.add_token(self.tokens_file, name=name, role=role, adapter=adapter)
            _write(file, made)
        except Misconfigured as error:
            raise UnusableDataDir(str(error)) from error
        except OSError as error:
            raise _uninhabitable(file, error) from error
        return Kept(made, file)

    def _read(self, file: Path) -> str:
        try:
            return file.read_bytes()[:_LONGEST_TOKEN].decode("ascii", "ignore").strip()
        except FileNotFoundError:
            return ""

    def _is_accepted(self, token: str, *, name: str, role: Role, adapter: str) -> bool:
        if not self.tokens_file.exists():
            return False
        meant = tokens_file.StoredToken(name, role, tokens_file.digest_of(token), adapter)
        return meant in tokens_file.read(self.tokens_file).tokens


def _mark(kept: Kept) -> Path:
    return kept.file.with_name(f".{kept.file.name}-shown")


def _uninhabitable(place: Path, error: OSError) -> UnusableDataDir:
    return UnusableDataDir(f"{place}: {(error.strerror or str(error)).lower()}")


def _write(file: Path, token: str) -> None:
    """At once, and never readable by anybody else, not even for a moment."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE), "w") as writing:
        writing.write(f"{token}\n")
    fresh.replace(file)

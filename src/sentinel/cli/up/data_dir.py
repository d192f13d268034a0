"""The data directory of `sentinel up`, kept from one start to the next.

    fleet.db        the fleet, unless --database-url names another database
    tokens.yaml     the hashes of the tokens that the API accepts
    tokens/         the tokens of the pulses and adapters, a file each
    admin-token     the token for users, if other machines can reach the API
    agent-token     the registration token for agents, if other machines can reach the hub
    instances/      the folders of proxy instances, with --agents
    up.lock         locked by the running process

Only its owner can read the files. Pulses and adapters authenticate with tokens here as they do in production, so
that one that exceeds its role fails here first.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sentinel.core.access import Role
from sentinel.drivers.identity import token_editing, tokens_file
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.bearer_tokens import digest_of

PRIVATE = 0o600

_PRIVATE_FOLDER = 0o700
_MAX_TOKEN_LENGTH = 1024


class UnusableDataDir(Exception):
    """The data directory cannot be used; the message has the reason."""


class TokenFile(msgspec.Struct, frozen=True):
    """A token and the file that contains it."""

    token: str
    path: Path

    def __repr__(self) -> str:
        return f"TokenFile(path={self.path})"


class UpTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one `sentinel up`."""

    pulse: TokenFile
    """The token of all pulses."""
    viewer: TokenFile
    """The token of the live view."""
    adapters: Mapping[str, TokenFile]
    """Tokens of adapters, by name."""
    demo: TokenFile | None = None
    instances: TokenFile | None = None
    """The token that assigns configurations to the instances of this process."""
    admin: TokenFile | None = None
    """The token for users, if they need one."""
    agent: TokenFile | None = None
    """The registration token of agents, if they need one."""

    @property
    def secrets(self) -> Iterator[str]:
        """All tokens, for redaction."""
        for each in (
            self.pulse,
            self.viewer,
            *self.adapters.values(),
            self.demo,
            self.instances,
            self.admin,
            self.agent,
        ):
            if each is not None:
                yield each.token


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's data folder for sentinel, by the XDG rules."""
    data = environ.get("XDG_DATA_HOME", "")
    root = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return root / "sentinel"


class DataDir:
    """A data directory. Nothing is written to it before it is locked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock it, creating it if it does not exist. Raises `UnusableDataDir`."""
        try:
            # An existing folder keeps its mode: it may contain other files of the user.
            self.folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._tokens_folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
            lock = os.open(self.folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        try:
            self._acquire(lock)
            yield
        finally:
            os.close(lock)

    @property
    def database_url(self) -> str:
        """The URL of the embedded database."""
        return f"sqlite:///{self.folder / 'fleet.db'}"

    @property
    def instances_folder(self) -> Path:
        """The folders of proxy instances."""
        return self.folder / "instances"

    @property
    def tokens_file(self) -> Path:
        """The tokens file of the API server."""
        return self.folder / "tokens.yaml"

    def tokens(
        self,
        adapters: Iterable[str],
        *,
        has_demo: bool,
        has_admin: bool,
        has_agent: bool = False,
        has_instances: bool = False,
    ) -> UpTokens:
        """Return all tokens, creating those that are missing. Raises `UnusableDataDir`."""
        return UpTokens(
            pulse=self.part_token("pulse", role=Role.PULSE),
            viewer=self.part_token("viewer", role=Role.VIEWER),
            adapters={
                name: self.part_token(f"adapter-{name}", role=Role.ADAPTER, adapter=name) for name in adapters
            },
            demo=self.part_token("demo", role=Role.OPERATOR) if has_demo else None,
            instances=self.part_token("instances", role=Role.OPERATOR) if has_instances else None,
            admin=self.admin_token() if has_admin else None,
            agent=self.agent_token() if has_agent else None,
        )

    def part_token(self, name: str, *, role: Role, adapter: str = "") -> TokenFile:
        """Return the token of a part, creating it if it is missing."""
        return self._load_or_create(self._tokens_folder / name, name=name, role=role, adapter=adapter)

    def admin_token(self) -> TokenFile:
        """Return the token for users, creating it if it is missing."""
        return self._load_or_create(self.folder / "admin-token", name="admin", role=Role.ADMIN, adapter="")

    def agent_token(self) -> TokenFile:
        """Return the token for agents, creating it if it is missing."""
        return self._load_or_create(self.folder / "agent-token", name="agent", role=Role.AGENT, adapter="")

    def was_shown(self, token: TokenFile) -> bool:
        """Whether `mark_shown` was called for this token."""
        return self._read(_shown_marker(token)) == digest_of(token.token).hex()

    def mark_shown(self, token: TokenFile) -> None:
        """Remember that the token was printed. Raises `UnusableDataDir`."""
        try:
            _write(_shown_marker(token), digest_of(token.token).hex())
        except OSError as error:
            raise _unusable(token.path, error) from error

    @property
    def _tokens_folder(self) -> Path:
        return self.folder / "tokens"

    def _acquire(self, lock: int) -> None:
        # The lock of the database is not enough: --database-url may name one that is elsewhere.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnusableDataDir(f"{self.folder} is in use by another process; stop that one first") from error
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def _load_or_create(self, path: Path, *, name: str, role: Role, adapter: str) -> TokenFile:
        """Return the token in the file if the API still accepts it for this role; otherwise create a new one."""
        try:
            known = self._read(path)
            if known and self._is_accepted(known, name=name, role=role, adapter=adapter):
                path.chmod(PRIVATE)
                return TokenFile(known, path)
            created = token_editing.add_token(self.tokens_file, name=name, role=role, adapter=adapter)
            _write(path, created)
        except Misconfigured as error:
            raise UnusableDataDir(str(error)) from error
        except OSError as error:
            raise _unusable(path, error) from error
        return TokenFile(created, path)

    def _read(self, path: Path) -> str:
        try:
            return path.read_bytes()[:_MAX_TOKEN_LENGTH].decode("ascii", "ignore").strip()
        except FileNotFoundError:
            return ""

    def _is_accepted(self, token: str, *, name: str, role: Role, adapter: str) -> bool:
        if not self.tokens_file.exists():
            return False
        expected = tokens_file.StoredToken(name, role, digest_of(token).hex(), adapter)
        return expected in tokens_file.read(self.tokens_file).tokens


def write_temporary(path: Path, content: bytes, *, mode: int) -> Path:
    """Write a temporary file beside `path`, for the caller to rename; it never has a wider mode than this."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    return temporary


def _write(path: Path, text: str) -> None:
    write_temporary(path, f"{text}\n".encode(), mode=PRIVATE).replace(path)


def _shown_marker(token: TokenFile) -> Path:
    return token.path.with_name(f".{token.path.name}-shown")


def _unusable(path: Path, error: OSError) -> UnusableDataDir:
    return UnusableDataDir(f"{path}: {(error.strerror or str(error)).lower()}")

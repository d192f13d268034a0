"""Which database a URL names: `sqlite:///fleet.db`, `postgresql://user:password@host/name`.

A URL holds a password, and is shown in logs and errors without it. That needs certainty about where the password
ends: one with an unescaped `#` or `/` would put its second half where hosts and databases are shown. So a URL that
can be read in two ways is refused, in words that quote nothing of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec

from sentinel.runtime.secrets import Redactor, Secret

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?", re.ASCII)
_PORT = re.compile(r":([0-9]+)(?:,|$)", re.ASCII)
_LARGEST_PORT = 65535


class InvalidDatabaseUrl(ValueError):
    """A text that names no database; free of secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"expected a database as {_SQLITE}fleet.db or postgresql://user@host/name; {reason}")
        self.reason = reason
        """Why it does not, for those who say themselves what was expected."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A file of SQLite's."""

    path: Path

    def __str__(self) -> str:
        return f"{_SQLITE}{self.path}"


class PostgresqlServer(msgspec.Struct, frozen=True):
    """A database on a PostgreSQL server; shows itself without its password."""

    dsn: Secret

    def __str__(self) -> str:
        return str(self.dsn)


DatabaseAddress: TypeAlias = SqliteFile | PostgresqlServer


def parse_database_url(url: str) -> DatabaseAddress:
    """Raises `InvalidDatabaseUrl`."""
    if url.startswith(_POSTGRESQL):
        shown = _without_secrets(url)
        if shown != url:
            # What stands elsewhere in it may be the password once more.
            shown = Redactor([url]).redact(shown)
        return PostgresqlServer(Secret(url, shown=shown))
    if url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
        if not path or path.startswith(":memory:") or "?" in path:
            raise InvalidDatabaseUrl(f"{url!r} names no file")
        return SqliteFile(Path(path))
    if url.startswith("sqlite:"):
        raise InvalidDatabaseUrl(f"put {_SQLITE} before the name of the file")
    scheme = url.partition(":")[0] if "://" in url else ""
    raise InvalidDatabaseUrl(f"got a URL of {scheme!r}" if scheme else "got no URL")


def _without_secrets(url: str) -> str:
    """The URL without password and without parameters, which may hold one as well."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Without its cause, which may quote all there is.
        raise InvalidDatabaseUrl("got a URL that cannot be read") from None
    user, at, hosts = parts.netloc.rpartition("@")
    if not _is_unequivocal(parts, user, hosts):
        raise InvalidDatabaseUrl("write / ? # and @ in a password percent-encoded, such as %23 for #")
    if any(int(port) > _LARGEST_PORT for port in _PORT.findall(hosts)):
        raise InvalidDatabaseUrl(f"got a port beyond {_LARGEST_PORT}")
    return f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}"


def _is_unequivocal(parts: SplitResult, user: str, hosts: str) -> bool:
    """Whether nothing that is shown, and nothing that the driver takes for a host, can be part of a password."""
    if parts.fragment or "@" in user + parts.path + parts.query:
        return False
    return all(_HOST.fullmatch(host) for host in hosts.split(","))

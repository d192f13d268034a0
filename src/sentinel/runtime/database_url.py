"""Parses database URLs: `sqlite:///fleet.db`, `postgresql://user:password@host/name`.

Logs and errors show a URL without its password, so we must know where the password ends. An unescaped `#` or `/`
in it would put its second half where hosts and databases are shown. So an ambiguous URL is rejected, with a
message that quotes nothing of it.
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
_MAX_PORT = 65535


class SqliteFile(msgspec.Struct, frozen=True):
    """An SQLite database."""

    path: Path

    def __str__(self) -> str:
        return f"{_SQLITE}{self.path}"


class PostgresqlServer(msgspec.Struct, frozen=True):
    """A database on a PostgreSQL server. `str()` omits the password."""

    dsn: Secret

    def __str__(self) -> str:
        return str(self.dsn)


DatabaseAddress: TypeAlias = SqliteFile | PostgresqlServer


class InvalidDatabaseUrl(ValueError):
    """The text is not a database URL. The message contains no secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"expected a database as {_SQLITE}fleet.db or postgresql://user@host/name; {reason}")
        self.reason = reason
        """The message without its "expected" part."""


def parse_database_url(url: str) -> DatabaseAddress:
    """Parse a URL. Raises `InvalidDatabaseUrl`."""
    if url.startswith(_POSTGRESQL):
        shown = _without_secrets(url)
        if shown != url:
            # Another part of the URL may repeat the password.
            shown = Redactor([url]).redact(shown)
        return PostgresqlServer(Secret(url, shown=shown))
    if url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
        if not path or path.startswith(":memory:") or "?" in path:
            raise InvalidDatabaseUrl(f"got {url!r} without a file")
        return SqliteFile(Path(path))
    if url.startswith("sqlite:"):
        raise InvalidDatabaseUrl(f"write {_SQLITE} before the path of the file")
    scheme = url.partition(":")[0] if "://" in url else ""
    raise InvalidDatabaseUrl(f"got a URL of {scheme!r}" if scheme else "got no URL")


def _without_secrets(url: str) -> str:
    """Return the URL without password and parameters, which may contain one as well."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Without the cause, which may quote the URL.
        raise InvalidDatabaseUrl("got a URL that cannot be parsed") from None
    user, at, hosts = parts.netloc.rpartition("@")
    if not _is_unambiguous(parts, user, hosts):
        raise InvalidDatabaseUrl("write / ? # and @ in a password percent-encoded, such as %23 for #")
    if any(int(port) > _MAX_PORT for port in _PORT.findall(hosts)):
        raise InvalidDatabaseUrl(f"got a port above {_MAX_PORT}")
    return f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}"


def _is_unambiguous(parts: SplitResult, user: str, hosts: str) -> bool:
    """Whether the parts that are shown, hosts included, cannot contain a part of a password."""
    if parts.fragment or "@" in user + parts.path + parts.query:
        return False
    return all(_HOST.fullmatch(host) for host in hosts.split(","))

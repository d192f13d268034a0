"""From a database URL to a database: `sqlite:///fleet.db`, `postgresql://user@host/name`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from sentinel.drivers.sql.schema import Migration
from sentinel.drivers.sql.statements import Database
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.secrets import Secret

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")
_MIGRATION_PATIENCE = timedelta(seconds=30)
CONNECTIONS = 10


class BadUrl(ValueError):
    """A text that names no database; free of secrets."""


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


Address: TypeAlias = SqliteFile | PostgresqlServer


def parse(url: str) -> Address:
    """Raises `BadUrl`."""
    if url.startswith(_POSTGRESQL):
        shown = Redactor([url]).redact(_without_secrets(url))
        return PostgresqlServer(Secret(url, shown=shown))
    if url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
        if not path or path.startswith(":memory:") or "?" in path:
            raise BadUrl(f"expected a file as in {_SQLITE}fleet.db, got {url!r}")
        return SqliteFile(Path(path))
    scheme = url.partition(":")[0] if "://" in url else ""
    got = f"a URL of {scheme!r}" if scheme else "no URL"
    raise BadUrl(f"expected a database as {_SQLITE}fleet.db or postgresql://user@host/name, got {got}")


def _without_secrets(url: str) -> str:
    """The URL without password and without parameters, which may hold one as well."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadUrl(
            "expected a database as postgresql://user@host/name, got a URL that cannot be read"
        ) from error
    user, at, host = parts.netloc.rpartition("@")
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}"


def database(url: str, *, migrate: bool, connections: int = CONNECTIONS) -> Database:
    """A database that is yet to be opened. `connections` bounds those to PostgreSQL. Raises `BadUrl`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.sqlite import SqliteDatabase

            return SqliteDatabase(path, migrate=migrate)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.postgresql import PostgresqlDatabase

            return PostgresqlDatabase(dsn, migrate=migrate, connections=connections)


async def migrate(url: str) -> Migration:
    """Brings the tables into the shape that this program expects. Raises `BadUrl`, `Unusable`, `Unavailable`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql import sqlite_file

            return await asyncio.to_thread(sqlite_file.migrate, path, patience=_MIGRATION_PATIENCE)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=True, connections=1).prepare(migrate=True)


async def revision(url: str) -> str | None:
    """The revision of the tables, None where there are none. Changes nothing. Raises like `migrate`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql import sqlite_file

            return await asyncio.to_thread(sqlite_file.revision, path)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=False, connections=1).revision()

"""From a URL to the database that it names, opened, brought up to date, or just asked for its revision."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.drivers.sql.engine.schema import Migration
from sentinel.drivers.sql.engine.statements import Database
from sentinel.runtime.database_url import PostgresqlServer, SqliteFile, parse

_MIGRATION_PATIENCE = timedelta(seconds=30)
CONNECTIONS = 10


def database(url: str, *, migrate: bool, connections: int = CONNECTIONS) -> Database:
    """A database that is yet to be opened. `connections` bounds those to PostgreSQL. Raises `BadUrl`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine.sqlite import SqliteDatabase

            return SqliteDatabase(path, migrate=migrate)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return PostgresqlDatabase(dsn, migrate=migrate, connections=connections)


async def migrate(url: str) -> Migration:
    """Brings the tables up to date. Raises `BadUrl`, `Misconfigured`, `Unavailable`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(sqlite_file.migrate, path, patience=_MIGRATION_PATIENCE)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=True, connections=1).prepare(migrate=True)


async def revision(url: str) -> str | None:
    """The revision of the tables, None where there are none. Changes nothing. Raises like `migrate`."""
    match parse(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(sqlite_file.revision, path)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=False, connections=1).revision()

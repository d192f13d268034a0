"""The SQL database under every store: SQLite embedded, PostgreSQL in production, one history of migrations.

It knows no component's tables. A component brings its tables, its statements and its migrations, and builds its
store on a database that is opened once per process. The functions here lead from a URL to that database.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.runtime.database_url import PostgresqlServer, SqliteFile, parse_database_url

_MIGRATION_PATIENCE = timedelta(seconds=30)
CONNECTIONS = 10


def database(url: str, *, migrate: bool, connections: int = CONNECTIONS, history: History) -> SqlDatabase:
    """A database that is yet to be opened. `connections` limits those to PostgreSQL. Raises `BadUrl`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine.sqlite import SqliteDatabase

            return SqliteDatabase(path, migrate=migrate, history=history)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return PostgresqlDatabase(dsn, migrate=migrate, connections=connections, history=history)


async def migrate(url: str, *, history: History) -> Migration:
    """Brings the tables up to date. Raises `BadUrl`, `Misconfigured`, `Unavailable`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(
                sqlite_file.migrate, path, history=history, patience=_MIGRATION_PATIENCE
            )
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            migrating = PostgresqlDatabase(dsn, migrate=True, connections=1, history=history)
            return await migrating.prepare(migrate=True)


async def revision(url: str, *, history: History) -> str | None:
    """The revision of the tables, None where there are none. Changes nothing. Raises like `migrate`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(sqlite_file.revision, path)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=False, connections=1, history=history).revision()

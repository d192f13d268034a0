"""The SQL database under every store: SQLite embedded, PostgreSQL in production, one history of migrations.

The engine does not depend on any component's tables. A component defines its tables, statements and migrations,
and builds its store on a database that is opened once per process. The functions here take the database's URL.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.runtime.database_url import PostgresqlServer, SqliteFile, parse_database_url

_MIGRATION_LOCK_TIMEOUT = timedelta(seconds=30)
_MAX_CONNECTIONS = 10


def database(url: str, *, migrate: bool, connections: int = _MAX_CONNECTIONS, history: History) -> SqlDatabase:
    """Return a database, not yet open. `connections` limits PostgreSQL's pool. Raises `InvalidDatabaseUrl`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine.sqlite import SqliteDatabase

            return SqliteDatabase(path, migrate=migrate, history=history)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return PostgresqlDatabase(dsn, migrate=migrate, connections=connections, history=history)


async def migrate(url: str, *, history: History) -> Migration:
    """Migrate the tables to the head. Raises `InvalidDatabaseUrl`, `Misconfigured`, `Unavailable`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(
                sqlite_file.migrate, path, history=history, timeout=_MIGRATION_LOCK_TIMEOUT
            )
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            migrating = PostgresqlDatabase(dsn, migrate=True, connections=1, history=history)
            return await migrating.prepare(migrate=True)


async def revision(url: str, *, history: History) -> str | None:
    """Return the revision of the tables, or None if there are none. Raises like `migrate`."""
    match parse_database_url(url):
        case SqliteFile(path):
            from sentinel.drivers.sql.engine import sqlite_file

            return await asyncio.to_thread(sqlite_file.revision, path)
        case PostgresqlServer(dsn):
            from sentinel.drivers.sql.engine.postgresql import PostgresqlDatabase

            return await PostgresqlDatabase(dsn, migrate=False, connections=1, history=history).revision()

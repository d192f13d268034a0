"""A SQLite database file: its lock, its connections and its tables.

Only one process may use a file. Two would wait for each other at every commit and fail when that takes too long. A
lock file reports this at startup instead of as a stray error under load.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from sentinel.drivers.sql.engine import schema
from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.ports.errors import Misconfigured

APPLICATION_ID = 0x534E_544C
"""The letters SNTL; SQLite's own tools show it."""

BUSY_TIMEOUT = timedelta(seconds=5)

_MAX_VALUE_BYTES = 64 * 1024 * 1024
"""No document is nearly this long, but SQLite needs several times the length of a page while joining it."""


class FileLock:
    """Restricts a database file to one process. The lock ends when it is released or the process exits."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._descriptor: int | None = None

    def acquire(self, *, timeout: timedelta = timedelta(0)) -> None:
        """Raises `Misconfigured` if another process holds it for longer than `timeout`."""
        # Resolved, so that a symbolic link leads to the same lock.
        file = self._database.resolve()
        try:
            descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Misconfigured(f"{self._database}: cannot lock it: {error.strerror}") from error
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                os.close(descriptor)
                by = f" by process {holder}" if holder.isdigit() else ""
                raise Misconfigured(
                    f"{self._database} is in use{by}: SQLite serves one process at a time; "
                    "stop the other one, or use PostgreSQL"
                ) from error
            break
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Idempotent. The lock file stays: if it were removed, two processes could each lock their own."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def connect(file: Path, *, is_reader: bool = False, busy_timeout: timedelta = BUSY_TIMEOUT) -> sqlite3.Connection:
    """Open a connection with the settings that all statements here expect. The caller manages transactions."""
    try:
        if not is_reader and not file.exists():
            # Not every user of the machine may read specs. SQLite gives its other files the same mode.
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            file,
            timeout=busy_timeout.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
    except OSError as error:
        raise Misconfigured(f"{file}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise Misconfigured(f"{file}: {error}") from error
    try:
        if is_reader:
            connection.execute("PRAGMA query_only = ON")
            # Fits a page of a thousand resources. With the default of 2 MB a list evicts what it reads next.
            connection.execute("PRAGMA cache_size = -6144")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        else:
            # Fits seven resources. With the default of 4096 it is one, and walking the fleet costs twice as much.
            # With larger pages a single report would cost more, as it writes every page it touches.
            connection.execute("PRAGMA page_size = 16384")
            connection.execute("PRAGMA journal_mode = WAL")
            # Without FULL a power cut can lose the last commits in the log.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_size_limit = 67108864")
    except sqlite3.Error as error:
        connection.close()
        raise Misconfigured(f"{file}: {error}") from error
    return connection


def prepare(file: Path, *, migrate: bool, history: History) -> Migration:
    """Check or migrate the tables. The caller holds the lock. Raises `Misconfigured`."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    if not migrate:
        history.require_current(revision(file), where=str(file))
    with closing(connect(file)) as connection:
        _require_application_id(connection, file)
    engine = create_engine("sqlite://", creator=lambda: connect(file), poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connected:
        return schema.prepare(connected, where=str(file), migrate=migrate, history=history)


def migrate(file: Path, *, history: History, timeout: timedelta) -> Migration:
    """Migrate the tables once no other process uses them. Raises `Misconfigured`."""
    lock = FileLock(file.absolute())
    lock.acquire(timeout=timeout)
    try:
        return prepare(file.absolute(), migrate=True, history=history)
    finally:
        lock.release()


def revision(file: Path) -> str | None:
    """Return the revision of the tables, or None if there are none. Safe while a server runs."""
    if not file.exists():
        return None
    with closing(connect(file, is_reader=True)) as connection:
        try:
            _require_application_id(connection, file)
            found = connection.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}").fetchone()  # noqa: S608
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise Misconfigured(f"{file}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Misconfigured(f"{file}: {error}") from error
    return None if found is None else str(found[0])


def _require_application_id(connection: sqlite3.Connection, file: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application not in (0, APPLICATION_ID):
        raise Misconfigured(f"{file} is a database of another program")

"""The file of a SQLite database: whose it is, how it is opened, and which tables are in it.

One process at a time: two would keep each other waiting at every commit, and fail where one waits too long. A
lock beside the file says so at once, instead of a stray error under load.
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
"""What SQLite's own tools show of a database of ours: "SNTL"."""

BUSY = timedelta(seconds=5)

_LONGEST_READ = 64 * 1024 * 1024
"""In bytes, of one value. No document is nearly as long; but a page of large ones, joined by SQLite, takes several
times its length while it grows."""


class FileLock:
    """Keeps a database file to one process. It is let go by closing, or by the death of the process."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._descriptor: int | None = None

    def take(self, *, patience: timedelta = timedelta(0)) -> None:
        """Raises `Misconfigured` where another process has it for longer than `patience`."""
        # Of the file itself: whoever comes to it by a link has to meet the same lock.
        file = self._database.resolve()
        try:
            descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Misconfigured(f"{self._database}: cannot lock it: {error.strerror}") from error
        end = time.monotonic() + patience.total_seconds()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() < end:
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
        """Harmless when repeated. The file stays: removing it would let two processes hold two locks."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def connect(file: Path, *, is_reader: bool = False, busy: timedelta = BUSY) -> sqlite3.Connection:
    """A connection as this program wants it; transactions are begun and ended by whoever uses it."""
    try:
        if not is_reader and not file.exists():
            # Specs may hold what not every user of the machine should read; SQLite's other files follow this one.
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            file,
            timeout=busy.total_seconds(),
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
            # A page of a thousand resources: with SQLite's own 2 MB a list evicts what it is about to read again.
            connection.execute("PRAGMA cache_size = -6144")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_READ)
        else:
            # Seven resources to a page: with SQLite's own 4096 it is one, and a walk through a fleet costs twice
            # as much. Larger still, and a lone report would cost more, which writes every page that it touches.
            connection.execute("PRAGMA page_size = 16384")
            connection.execute("PRAGMA journal_mode = WAL")
            # Without FULL the last commits of a log can be lost to a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_size_limit = 67108864")
    except sqlite3.Error as error:
        connection.close()
        raise Misconfigured(f"{file}: {error}") from error
    return connection


def prepare(file: Path, *, migrate: bool, history: History) -> Migration:
    """Checks or migrates the tables; the caller has the lock. Raises `Misconfigured`."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    if not migrate:
        history.require_current(revision(file), where=str(file))
    with closing(connect(file)) as connection:
        _require_ours(connection, file)
    engine = create_engine("sqlite://", creator=lambda: connect(file), poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connected:
        return schema.prepare(connected, where=str(file), migrate=migrate, history=history)


def migrate(file: Path, *, history: History, patience: timedelta) -> Migration:
    """Brings the tables up to date, as soon as no other process uses them. Raises `Misconfigured`."""
    lock = FileLock(file.absolute())
    lock.take(patience=patience)
    try:
        return prepare(file.absolute(), migrate=True, history=history)
    finally:
        lock.release()


def revision(file: Path) -> str | None:
    """The revision of the tables, None where there are none; changes nothing, also beside a running server."""
    if not file.exists():
        return None
    with closing(connect(file, is_reader=True)) as connection:
        try:
            _require_ours(connection, file)
            found = connection.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}").fetchone()  # noqa: S608
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise Misconfigured(f"{file}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Misconfigured(f"{file}: {error}") from error
    return None if found is None else str(found[0])


def _require_ours(connection: sqlite3.Connection, file: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application not in (0, APPLICATION_ID):
        raise Misconfigured(f"{file} is a database of another program")

"""SQLite: one writer thread with group commit, and several reader threads.

SQLite allows one writer at a time, and the expensive part of a write is the commit, which waits for the disk. So
one thread does all writes. It takes every waiting job, runs each in a savepoint, commits once and only then
returns the results: nothing confirmed is lost, and many reports share one wait for the disk. Readers have their
own connections and do not wait for the writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from sentinel.drivers.sql.engine.schema import History
from sentinel.drivers.sql.engine.sqlite_file import APPLICATION_ID, BUSY_TIMEOUT, FileLock, connect, prepare
from sentinel.drivers.sql.engine.statements import (
    AutocommitSession,
    Duplicate,
    NeedsTransaction,
    Row,
    Session,
    SqlValue,
    Statement,
    TooLong,
)
from sentinel.drivers.sql.engine.wakeups import Wakeups
from sentinel.drivers.sql.engine.worker_threads import Job, WorkerThreads
from sentinel.ports.errors import Unavailable

T = TypeVar("T")

_READER_THREADS = 4
_MAX_WAITING = 4096
_MAX_BATCH = 256
"""How many jobs share a commit: enough to make it cheap, few enough that the first does not wait long."""
_TIMEOUT = timedelta(seconds=30)
_READ_TIMEOUT = timedelta(seconds=20)
_INSTRUCTIONS_BETWEEN_CHECKS = 200_000
_ROWS_PER_FETCH = 16
"""How many rows may exceed a limit in bytes before they are counted."""
_UNIQUE = "UNIQUE constraint failed: "


class SqliteSession:
    """A connection to SQLite."""

    can_write_two_tables = False
    has_snapshot = True
    joins_bytes = True
    can_stop_reading = True
    numbers_transactions = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failure: sqlite3.OperationalError | None = None
        """An error of the database itself, which ends the transaction."""

    def rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        try:
            return self._execute(statement, values).fetchall()
        except sqlite3.DataError as error:
            raise TooLong(str(error)) from error

    def rows_of_short_values(self, statement: Statement, max_length: int, **values: SqlValue) -> Sequence[Row]:
        previous = self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_length)
        try:
            return self.rows(statement, **values)
        finally:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, previous)

    def rows_within(self, statement: Statement, max_bytes: int, /, **values: SqlValue) -> Sequence[Row]:
        found: list[Row] = []
        remaining = max_bytes
        with closing(self._execute(statement, values)) as cursor:
            while rows := cursor.fetchmany(_ROWS_PER_FETCH):
                remaining -= sum([len(row[0]) for row in rows])
                found += rows
                if remaining < 0:
                    return _cut(found, max_bytes)
        return found

    def run(self, statement: Statement, **values: SqlValue) -> int:
        return self._execute(statement, values).rowcount

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, SqlValue]]) -> None:
        for each in values:
            self._execute(statement, each)

    def _execute(self, statement: Statement, values: Mapping[str, SqlValue]) -> sqlite3.Cursor:
        compiled = statement.sqlite
        try:
            return self._connection.execute(compiled.text, compiled.bind(values))
        except sqlite3.IntegrityError as error:
            text = str(error)
            if text.startswith(_UNIQUE):
                raise Duplicate(_constraint(statement, text.removeprefix(_UNIQUE))) from error
            raise
        except sqlite3.OperationalError as error:
            self.failure = error
            raise Unavailable(f"the database failed: {error}") from error


def _cut(rows: Sequence[Row], max_bytes: int) -> Sequence[Row]:
    """The rows before the one that exceeds the limit, at least one, and a row without its first column."""
    for count, size in enumerate(accumulate(len(row[0]) for row in rows)):
        if count and size > max_bytes:
            return [*rows[:count], (None, *rows[count][1:])]
    return rows


def _constraint(statement: Statement, columns: str) -> str:
    """Return the constraint's name. SQLite reports its columns instead: `hub_things.id, hub_things.name`."""
    wanted = [each.strip().rpartition(".")[2] for each in columns.split(",")]
    for constraint in () if statement.table is None else statement.table.constraints:
        if [column.name for column in getattr(constraint, "columns", ())] == wanted and constraint.name:
            return str(constraint.name)
    return columns


class _Writer:
    """Runs a batch of writes: one transaction for all, and a savepoint for each if there are several."""

    def __init__(self, file: Path, *, busy_timeout: timedelta) -> None:
        self._file = file
        self._connection = connect(file, busy_timeout=busy_timeout)
        self.unavailable_reason: str | None = None

    def run(self, jobs: Sequence[Job]) -> None:
        session = SqliteSession(self._connection)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                if not job.is_abandoned:
                    self._run_job(job, session, is_alone=len(jobs) == 1)
                if session.failure is not None:
                    raise session.failure
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            # No caller gets a result before the commit, so all of them can fail together.
            self._fail(jobs, error)
        else:
            self.unavailable_reason = None

    def _run_job(self, job: Job, session: Session, *, is_alone: bool) -> None:
        """Run a job in a savepoint, so that it can fail without the others. One that is alone needs none.

        A savepoint copies every page before it is changed.
        """
        if not is_alone:
            self._connection.execute("SAVEPOINT work")
        try:
            job.result = job.work(session)
        except BaseException as error:  # belongs to the caller, not to this thread
            job.error = error
            # A full disk may have rolled back everything already, savepoint included.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK" if is_alone else "ROLLBACK TO work")
        if not is_alone and self._connection.in_transaction:
            self._connection.execute("RELEASE work")

    def _fail(self, jobs: Sequence[Job], error: sqlite3.Error) -> None:
        self.unavailable_reason = f"{self._file}: {error}"
        for job in jobs:
            job.result = None
            job.error = Unavailable(self.unavailable_reason)
            job.error.__cause__ = error
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @property
    def is_failing(self) -> bool:
        return self.unavailable_reason is not None

    def recover(self) -> None:
        """Write one page: while not ready, no request would come to show that the database has recovered."""
        try:
            self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        except sqlite3.Error as error:
            self.unavailable_reason = f"{self._file}: {error}"
        else:
            self.unavailable_reason = None

    def close(self) -> None:
        self._connection.close()


class _Reader:
    """Runs reads, each on one snapshot."""

    def __init__(self, file: Path) -> None:
        self._connection = connect(file, is_reader=True)
        self._connection.set_progress_handler(self._should_stop, _INSTRUCTIONS_BETWEEN_CHECKS)
        self._job: Job | None = None
        self._deadline = 0.0

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._job, self._deadline = job, time.monotonic() + _READ_TIMEOUT.total_seconds()
            try:
                self._connection.execute("BEGIN")
                job.result = job.work(SqliteSession(self._connection))
            except sqlite3.OperationalError as error:
                job.error = Unavailable(f"the database failed: {error}")
                job.error.__cause__ = error
            except BaseException as error:  # belongs to the caller, not to this thread
                job.error = error
            finally:
                self._job = None
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")

    def _should_stop(self) -> bool:
        """Called by SQLite now and then: a scan for a cancelled caller must not delay others."""
        return self._job is not None and (self._job.is_abandoned or time.monotonic() > self._deadline)

    is_failing = False

    def recover(self) -> None: ...

    def close(self) -> None:
        self._connection.close()


class SqliteDatabase:
    """A SQLite file."""

    def __init__(
        self, file: Path, *, migrate: bool, history: History, busy_timeout: timedelta = BUSY_TIMEOUT
    ) -> None:
        """With `migrate`, opening upgrades tables older than `history`. `busy_timeout` is how long to wait for
        another process that holds SQLite's own lock, such as its shell."""
        self._file = file.absolute()
        self._migrate = migrate
        self._history = history
        self._busy_timeout = busy_timeout
        self._lock = FileLock(self._file)
        self._writer: _Writer | None = None
        self._writes: WorkerThreads | None = None
        self._reads: WorkerThreads | None = None
        self._wakeups = Wakeups()

    async def open(self) -> None:
        if self._writes is not None:
            return
        preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare))
        try:
            writer, readers = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            # A thread cannot be cancelled, so close what it opens once it is done.
            preparing.add_done_callback(self._discard)
            raise
        self._writer = writer
        self._writes = WorkerThreads(
            name="sqlite-writer",
            runners=[writer],
            max_waiting=_MAX_WAITING,
            max_batch=_MAX_BATCH,
            timeout=_TIMEOUT,
        )
        self._reads = WorkerThreads(
            name="sqlite-reader", runners=readers, max_waiting=_MAX_WAITING, max_batch=1, timeout=_TIMEOUT
        )

    def _prepare(self) -> tuple[_Writer, list[_Reader]]:
        with ExitStack() as opened:
            self._lock.acquire()
            opened.callback(self._lock.release)
            prepare(self._file, migrate=self._migrate, history=self._history)
            writer = _Writer(self._file, busy_timeout=self._busy_timeout)
            opened.callback(writer.close)
            readers = [_Reader(self._file) for _ in range(_READER_THREADS)]
            opened.pop_all()
            return writer, readers

    def _discard(self, prepared: asyncio.Future[tuple[_Writer, list[_Reader]]]) -> None:
        if prepared.cancelled() or prepared.exception() is not None:
            return
        writer, readers = prepared.result()
        for reader in readers:
            reader.close()
        writer.close()
        self._lock.release()

    async def close(self) -> None:
        reads, self._reads = self._reads, None
        writes, self._writes = self._writes, None
        for threads in (reads, writes):
            if threads is not None:
                await threads.close()
        self._writer = None
        self._lock.release()

    async def read(self, work: Callable[[Session], T]) -> T:
        if self._reads is None:
            raise Unavailable("the database is closed")
        return await self._reads.run(work)

    async def write(self, work: Callable[[Session], T]) -> T:
        if self._writes is None:
            raise Unavailable("the database is closed")
        return await self._writes.run(work)

    async def write_optimistically(self, work: Callable[[AutocommitSession], T]) -> T:
        raise NeedsTransaction

    def announce(self, channel: str) -> None:
        self._wakeups.wake(channel)

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[asyncio.Event]:
        # The file lock admits no other process that could announce anything.
        with self._wakeups.listening(channel) as event:
            yield event

    def unavailable_reason(self) -> str | None:
        return f"{self._file} is not open" if self._writer is None else self._writer.unavailable_reason

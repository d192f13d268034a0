"""SQLite, embedded: one writer that commits for many at once, and some readers beside it.

SQLite takes one writer at a time, and what a write costs is the commit, which waits for the disk. So writes go
to one thread. It takes all that waits, runs each piece of work within a savepoint of its own, commits once, and
only then answers: nothing is lost that was answered, and many reports share one wait for the disk. Readers have
connections of their own and are not kept waiting by it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from sentinel.drivers.sql.engine.schema import History
from sentinel.drivers.sql.engine.sqlite_file import APPLICATION_ID, BUSY, FileLock, connect, prepare
from sentinel.drivers.sql.engine.statements import (
    AutocommitSession,
    Duplicate,
    Row,
    Session,
    Statement,
    TooLong,
    Value,
)
from sentinel.drivers.sql.engine.worker_threads import Job, WorkerThreads
from sentinel.ports.errors import Unavailable

T = TypeVar("T")

_READERS = 4
_CAPACITY = 4096
_BATCH = 256
"""How many works share a commit: enough to make it cheap, and few enough that the first is not kept waiting."""
_PATIENCE = timedelta(seconds=30)
_READ_LIMIT = timedelta(seconds=20)
_STEPS_BETWEEN_CHECKS = 200_000
_UNIQUE = "UNIQUE constraint failed: "


class SqliteSession:
    """A connection to SQLite."""

    combines = False
    is_snapshot = True
    joins = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failure: sqlite3.OperationalError | None = None
        """Why the database itself failed; what was begun with it cannot be finished."""

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        try:
            return self._execute(statement, values).fetchall()
        except sqlite3.DataError as error:
            raise TooLong(str(error)) from error

    def run(self, statement: Statement, **values: Value) -> int:
        return self._execute(statement, values).rowcount

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
        for each in values:
            self._execute(statement, each)

    def _execute(self, statement: Statement, values: Mapping[str, Value]) -> sqlite3.Cursor:
        compiled = statement.sqlite
        try:
            return self._connection.execute(compiled.text, compiled.arrange(values))
        except sqlite3.IntegrityError as error:
            text = str(error)
            if text.startswith(_UNIQUE):
                raise Duplicate(_constraint(statement, text.removeprefix(_UNIQUE))) from error
            raise
        except sqlite3.OperationalError as error:
            self.failure = error
            raise Unavailable(f"the database failed: {error}") from error


def _constraint(statement: Statement, columns: str) -> str:
    """The name of the constraint that SQLite describes by its columns: `hub_things.id`, several with commas."""
    wanted = [each.strip().rpartition(".")[2] for each in columns.split(",")]
    for constraint in () if statement.table is None else statement.table.constraints:
        if [column.name for column in getattr(constraint, "columns", ())] == wanted and constraint.name:
            return str(constraint.name)
    return columns


class _Writer:
    """Serves the writes: a transaction for all, a savepoint for each."""

    def __init__(self, file: Path, *, busy: timedelta) -> None:
        self._file = file
        self._connection = connect(file, busy=busy)
        self.trouble: str | None = None

    def serve(self, jobs: Sequence[Job]) -> None:
        session = SqliteSession(self._connection)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                if not job.is_abandoned:
                    self._run(job, session)
                if session.failure is not None:
                    raise session.failure
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Nobody is told of success before the commit, so all may be told of failure together.
            self._fail(jobs, error)
        else:
            self.trouble = None

    def _run(self, job: Job, session: Session) -> None:
        self._connection.execute("SAVEPOINT work")
        try:
            job.result = job.work(session)
        except BaseException as error:  # whatever it is, it is for the one who waits, and not for this thread
            job.error = error
            # A full disk may have undone everything already; then there is no savepoint left.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO work")
        if self._connection.in_transaction:
            self._connection.execute("RELEASE work")

    def _fail(self, jobs: Sequence[Job], error: sqlite3.Error) -> None:
        self.trouble = f"{self._file}: {error}"
        for job in jobs:
            job.result = None
            job.error = Unavailable(self.trouble)
            job.error.__cause__ = error
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @property
    def is_troubled(self) -> bool:
        return self.trouble is not None

    def recover(self) -> None:
        """Writes a page, as small as it gets: readiness would otherwise wait for a write that nobody sends."""
        try:
            self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        except sqlite3.Error as error:
            self.trouble = f"{self._file}: {error}"
        else:
            self.trouble = None

    def close(self) -> None:
        self._connection.close()


class _Reader:
    """Serves the reads, each from one snapshot."""

    def __init__(self, file: Path) -> None:
        self._connection = connect(file, is_reader=True)
        self._connection.set_progress_handler(self._should_stop, _STEPS_BETWEEN_CHECKS)
        self._job: Job | None = None
        self._end = 0.0

    def serve(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._job, self._end = job, time.monotonic() + _READ_LIMIT.total_seconds()
            try:
                self._connection.execute("BEGIN")
                job.result = job.work(SqliteSession(self._connection))
            except sqlite3.OperationalError as error:
                job.error = Unavailable(f"the database failed: {error}")
                job.error.__cause__ = error
            except BaseException as error:  # for the one who waits, and not for this thread
                job.error = error
            finally:
                self._job = None
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")

    def _should_stop(self) -> bool:
        """Asked by SQLite now and then: a scan for somebody who has gone must not keep others waiting."""
        return self._job is not None and (self._job.is_abandoned or time.monotonic() > self._end)

    is_troubled = False

    def recover(self) -> None: ...

    def close(self) -> None:
        self._connection.close()


class SqliteDatabase:
    """A SQLite file, open."""

    def __init__(self, file: Path, *, migrate: bool, history: History, busy: timedelta = BUSY) -> None:
        """Where its tables are older than `history`, opening changes them if told to `migrate`. `busy` is how long
        to wait for another process that holds SQLite's own lock, as its shell may."""
        self._file = file.absolute()
        self._migrate = migrate
        self._history = history
        self._busy = busy
        self._lock = FileLock(self._file)
        self._writer: _Writer | None = None
        self._writes: WorkerThreads | None = None
        self._reads: WorkerThreads | None = None

    async def open(self) -> None:
        if self._writes is not None:
            return
        preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare))
        try:
            writer, readers = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it has opened when it is done is closed then.
            preparing.add_done_callback(self._discard)
            raise
        self._writer = writer
        self._writes = WorkerThreads(
            name="sqlite-writer", servers=[writer], capacity=_CAPACITY, batch=_BATCH, patience=_PATIENCE
        )
        self._reads = WorkerThreads(
            name="sqlite-reader", servers=readers, capacity=_CAPACITY, batch=1, patience=_PATIENCE
        )

    def _prepare(self) -> tuple[_Writer, list[_Reader]]:
        with ExitStack() as opened:
            self._lock.take()
            opened.callback(self._lock.release)
            prepare(self._file, migrate=self._migrate, history=self._history)
            writer = _Writer(self._file, busy=self._busy)
            opened.callback(writer.close)
            readers = [_Reader(self._file) for _ in range(_READERS)]
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
        return await self._reads.do(work)

    async def write(
        self, work: Callable[[Session], T], *, briefly: Callable[[AutocommitSession], T] | None = None
    ) -> T:
        """Never tries `briefly`: there is one writer, who shares his transaction anyway."""
        if self._writes is None:
            raise Unavailable("the database is closed")
        return await self._writes.do(work)

    def trouble(self) -> str | None:
        return f"{self._file} is not open" if self._writer is None else self._writer.trouble

"""SQLite through our worker threads and compiled statements, against what libraries offer.

A write does what a report does: read a document of 1.8 kB, write it back, append to a log, commit. A read is a
page of a list: 500 documents, concatenated by the database.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from bench import parts_tables
from bench.alternating import OURS, SQLALCHEMY, Variant, cheapest
from bench.parts_tables import DOCUMENT, PAGE, PAGE_SIZE, READ, READING, RECORD, RESOURCES, UPDATE, UPDATING
from sentinel.drivers.sql.engine.sqlite import SqliteDatabase, SqliteSession
from sentinel.drivers.sql.engine.sqlite_file import connect
from sentinel.drivers.sql.engine.statements import Session, SqlValue
from sentinel.drivers.sql.history import HISTORY

Do: TypeAlias = Callable[[int], Awaitable[None]]
"""Does it once for the resource with this number."""

EXECUTOR = "executor"

_CAPACITY = 4096
_TIMEOUT = 30.0
_ROUNDS = 40
_WRITES = 64
_WRITERS = 32
_READS = 12
_READERS = 4
_STATEMENTS = 200


class SqliteFigures(msgspec.Struct, frozen=True):
    """CPU microseconds, by implementation.

    Statements are measured on one connection in this thread, so that only their compilation differs.
    """

    writes_together: Mapping[str, float]
    """With 32 concurrent writers."""
    writes_alone: Mapping[str, float]
    """With one writer that waits for each write."""
    reads: Mapping[str, float]
    """With 4 concurrent readers."""
    read_statement: Mapping[str, float]
    update_statement: Mapping[str, float]


async def measure() -> SqliteFigures:
    """Measure on a new file."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-bench-"))
        file = Path(directory) / "parts.db"
        database = SqliteDatabase(file, migrate=True, history=HISTORY)
        await database.open()
        stack.push_async_callback(database.close)
        connection = stack.enter_context(closing(connect(file)))
        parts_tables.fill_sqlite(connection)
        readers = [stack.enter_context(closing(connect(file, is_reader=True))) for _ in range(_READERS)]
        executor = stack.enter_context(closing(_Executor(connection, readers)))
        one_thread = stack.enter_context(closing(_OneThread(connection)))
        per_statement = _ThreadPerStatement(connection)
        writes: dict[str, Do] = {
            OURS: lambda number: database.write(lambda session: _write(session, number)),
            "executor, in batches": _bounded(executor.write_in_batches),
            EXECUTOR: _bounded(executor.write),
            "a thread as in aiosqlite": _bounded(one_thread.write),
            "to_thread for each statement": _bounded(per_statement.write),
        }
        reads: dict[str, Do] = {
            OURS: lambda _: database.read(_read),
            EXECUTOR: _bounded(executor.read),
            "a thread as in aiosqlite": _bounded(one_thread.read),
            "to_thread for each statement": _bounded(per_statement.read),
        }
        return SqliteFigures(
            writes_together=await cheapest(_repeated(writes, _WRITES, concurrency=_WRITERS), rounds=_ROUNDS),
            writes_alone=await cheapest(_repeated(writes, _WRITES, concurrency=1), rounds=_ROUNDS // 4),
            reads=await cheapest(_repeated(reads, _READS, concurrency=_READERS), rounds=_ROUNDS),
            read_statement=await _read_statement(connection),
            update_statement=await _update_statement(connection),
        )


def _bounded(do: Do) -> Do:
    """Bound the queue and the wait, as ours does."""
    capacity = asyncio.Semaphore(_CAPACITY)

    async def bounded(number: int) -> None:
        async with asyncio.timeout(_TIMEOUT), capacity:
            await do(number)

    return bounded


def _repeated(variants: Mapping[str, Do], times: int, *, concurrency: int) -> dict[str, Variant]:
    def variant(do: Do) -> Variant:
        async def several() -> int:
            numbers = iter(range(times))

            async def one() -> None:
                for number in numbers:
                    await do(number)

            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(one())
            return times

        return several

    return {name: variant(do) for name, do in variants.items()}


def _write(session: Session, number: int) -> None:
    resource_id = parts_tables.resource_id(number % RESOURCES)
    version, _ = session.rows(READ, wanted=resource_id)[0]
    session.run(UPDATE, wanted=resource_id, version=version + 1, document=DOCUMENT)
    session.run(RECORD, resource_id=resource_id, actor="dns", action="report")


def _read(session: Session) -> None:
    joined, count = session.rows(PAGE)[0]
    assert count == PAGE_SIZE, count
    assert joined


class _ThreadPerStatement:
    """`asyncio.to_thread` for every statement, as with a plain driver."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def write(self, number: int) -> None:
        resource_id = parts_tables.resource_id(number % RESOURCES)
        async with self._lock:
            await self._do("BEGIN IMMEDIATE")
            [(version, _)] = await self._do(READ.sqlite.text, READ.sqlite.bind({"wanted": resource_id}))
            changed = {"wanted": resource_id, "version": version + 1, "document": DOCUMENT}
            await self._do(UPDATE.sqlite.text, UPDATE.sqlite.bind(changed))
            entry = {"resource_id": resource_id, "actor": "dns", "action": "report"}
            await self._do(RECORD.sqlite.text, RECORD.sqlite.bind(entry))
            await self._do("COMMIT")

    async def read(self, _: int) -> None:
        async with self._lock:
            [(_, count)] = await self._do(PAGE.sqlite.text, PAGE.sqlite.bind({}))
        assert count == PAGE_SIZE

    async def _do(self, text: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        return await asyncio.to_thread(lambda: self._connection.execute(text, values).fetchall())


class _OneThread(_ThreadPerStatement):
    """A thread per connection that executes statements from a queue, as aiosqlite does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def _do(self, text: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        future: asyncio.Future[Sequence[Any]] = self._loop.create_future()
        self._queue.put((future, lambda: self._connection.execute(text, values).fetchall()))
        return await future

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            future, statement = job
            result = statement()
            self._loop.call_soon_threadsafe(future.set_result, result)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


class _Executor:
    """`ThreadPoolExecutor`, one hop for all statements of a unit of work. Writes one by one, or in batches."""

    def __init__(self, writer: sqlite3.Connection, readers: list[sqlite3.Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._readers = readers
        self._write_thread = ThreadPoolExecutor(1)
        self._read_threads = ThreadPoolExecutor(len(readers))
        self._waiting: list[tuple[asyncio.Future[None], int]] = []
        self._serving: asyncio.Task[None] | None = None

    async def write(self, number: int) -> None:
        await self._loop.run_in_executor(self._write_thread, self._commit, [number])

    async def write_in_batches(self, number: int) -> None:
        """Write everything that waits in one hop and one commit."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((future, number))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        await future

    async def _serve(self) -> None:
        while self._waiting:
            jobs, self._waiting = self._waiting, []
            numbers = [number for _, number in jobs]
            await self._loop.run_in_executor(self._write_thread, self._commit, numbers)
            for future, _ in jobs:
                future.set_result(None)
        self._serving = None

    def _commit(self, numbers: Sequence[int]) -> None:
        session = SqliteSession(self._writer)
        self._writer.execute("BEGIN IMMEDIATE")
        for number in numbers:
            self._writer.execute("SAVEPOINT work")
            _write(session, number)
            self._writer.execute("RELEASE work")
        self._writer.execute("COMMIT")

    async def read(self, _: int) -> None:
        await self._loop.run_in_executor(self._read_threads, self._fetch)

    def _fetch(self) -> None:
        connection = self._readers.pop()
        connection.execute("BEGIN")
        _read(SqliteSession(connection))
        connection.execute("ROLLBACK")
        self._readers.append(connection)

    def close(self) -> None:
        self._write_thread.shutdown()
        self._read_threads.shutdown()


async def _read_statement(connection: sqlite3.Connection) -> dict[str, float]:
    """Measure our session and SQLAlchemy's engine on the same connection."""
    session = SqliteSession(connection)
    wanted = parts_tables.resource_id(7)
    with _engine(connection).connect() as through:

        async def ours() -> int:
            for _ in range(_STATEMENTS):
                session.rows(READ, wanted=wanted)
            return _STATEMENTS

        async def theirs() -> int:
            for _ in range(_STATEMENTS):
                through.execute(READING, {"wanted": wanted}).fetchall()
            return _STATEMENTS

        return await cheapest({OURS: ours, SQLALCHEMY: theirs}, rounds=_ROUNDS)


async def _update_statement(connection: sqlite3.Connection) -> dict[str, float]:
    session = SqliteSession(connection)
    changed: dict[str, SqlValue] = {"wanted": parts_tables.resource_id(7), "version": 3, "document": DOCUMENT}
    # Within one transaction: a commit would cost more than the statement.
    connection.execute("BEGIN IMMEDIATE")
    with _engine(connection).connect() as through:

        async def ours() -> int:
            for _ in range(_STATEMENTS):
                session.run(UPDATE, **changed)
            return _STATEMENTS

        async def theirs() -> int:
            for _ in range(_STATEMENTS):
                through.execute(UPDATING, changed)
            return _STATEMENTS

        return await cheapest({OURS: ours, SQLALCHEMY: theirs}, rounds=_ROUNDS)


def _engine(connection: sqlite3.Connection) -> Engine:
    return create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)

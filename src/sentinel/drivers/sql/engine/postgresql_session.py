"""A connection to PostgreSQL, used by plain synchronous functions.

Work runs in a greenlet, so that a statement in it waits without blocking the event loop. SQLAlchemy runs its own
asyncio engines the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.util import await_only

from sentinel.drivers.sql.engine.statements import Duplicate, Row, SqlValue, Statement
from sentinel.runtime.key_locks import KeyLocks
from sentinel.runtime.secrets import Secret

T = TypeVar("T")

_CONNECT_TIMEOUT = timedelta(seconds=5)
_STATEMENT_TIMEOUT = timedelta(seconds=15)
"""Enforced by the server."""


async def connect(dsn: Secret) -> Any:
    """Open a connection with the settings that all statements here expect."""
    return await asyncpg.connect(
        dsn.reveal(),
        timeout=_CONNECT_TIMEOUT.total_seconds(),
        server_settings={
            "application_name": "sentinel",
            "statement_timeout": str(_STATEMENT_TIMEOUT // timedelta(milliseconds=1)),
            "idle_in_transaction_session_timeout": str(2 * _STATEMENT_TIMEOUT // timedelta(milliseconds=1)),
            # Statements here are short, even if the planner estimates otherwise.
            "jit": "off",
            # Reading a page takes less time than starting a second process for it.
            "max_parallel_workers_per_gather": "0",
            # Lists walk along an index and stop after a page. A planner that expects few rows, because it does not
            # know the label or has no statistics yet, would collect them all and sort.
            "enable_bitmapscan": "off",
            "enable_seqscan": "off",
        },
    )


class PostgresqlSession:
    """A connection to PostgreSQL, within a greenlet."""

    can_write_two_tables = True
    has_snapshot = False
    joins_bytes = False  # takes three times as long as fetching them
    can_stop_reading = False  # without a transaction, which takes two more round trips
    numbers_transactions = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.failure: Exception | None = None
        """The driver's last error. The work itself may raise errors of the same types."""
        self.has_written = False
        """Whether a write was attempted, successfully or not."""

    def rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        compiled = statement.postgresql
        connection = self._connected()
        try:
            return self._await(connection.fetch(compiled.text, *compiled.bind(values)))
        except asyncpg.CharacterNotInRepertoireError:
            # PostgreSQL cannot store a text with a NUL, so no row matches one.
            return ()

    def rows_of_short_values(self, statement: Statement, max_length: int, **values: SqlValue) -> Sequence[Row]:
        return self.rows(statement, **values)

    def rows_within(self, statement: Statement, max_bytes: int, /, **values: SqlValue) -> Sequence[Row]:
        return self.rows(statement, **{**values, "max_bytes": max_bytes})

    def run(self, statement: Statement, **values: SqlValue) -> int:
        compiled = statement.postgresql
        connection = self._connected()
        self.has_written = True
        try:
            status = self._await(connection.execute(compiled.text, *compiled.bind(values)))
        except asyncpg.UniqueViolationError as error:
            raise Duplicate(error.constraint_name) from error
        return int(status.rpartition(" ")[2])

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, SqlValue]]) -> None:
        compiled = statement.postgresql
        connection = self._connected()
        self.has_written = True
        self._await(connection.executemany(compiled.text, [compiled.bind(each) for each in values]))

    def _connected(self) -> Any:
        return self._connection

    def _await(self, response: Coroutine[Any, Any, T]) -> T:
        try:
            return await_only(response)
        except Exception as error:
            self.failure = error
            raise


class PostgresqlAutocommitSession(PostgresqlSession):
    """A connection outside any transaction, acquired with the first statement: a task that waits for a key holds
    no connection."""

    def __init__(self, acquire: Callable[[], Awaitable[Any]], *, key_locks: KeyLocks) -> None:
        """`acquire` is called at most once. Its caller releases the connection."""
        super().__init__(None)
        self._acquire = acquire
        self._key_locks = key_locks
        self._key_lock: asyncio.Lock | None = None

    def lock_key(self, key: str) -> None:
        self._key_lock = await_only(self._key_locks.acquire(key))

    def unlock_key(self) -> None:
        """Does nothing if no key is locked."""
        if self._key_lock is not None:
            self._key_lock.release()
            self._key_lock = None

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = await_only(self._acquire())
        return self._connection

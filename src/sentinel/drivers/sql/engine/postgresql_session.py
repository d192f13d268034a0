"""A connection to PostgreSQL, and how a plain function uses it.

Work is a plain function. It runs in a greenlet, so that each statement in it waits without holding up the event
loop, exactly as SQLAlchemy runs its own asynchronous engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.util import await_only

from sentinel.drivers.sql.engine.key_locks import KeyLocks
from sentinel.drivers.sql.engine.statements import Duplicate, Row, Statement, Value
from sentinel.runtime.secrets import Secret

T = TypeVar("T")

_CONNECT = timedelta(seconds=5)
_STATEMENT = timedelta(seconds=15)
"""What the server allows a statement."""


async def connect(dsn: Secret) -> Any:
    """A connection as this program wants it."""
    return await asyncpg.connect(
        dsn.reveal(),
        timeout=_CONNECT.total_seconds(),
        server_settings={
            "application_name": "sentinel",
            "statement_timeout": str(_STATEMENT // timedelta(milliseconds=1)),
            "idle_in_transaction_session_timeout": str(2 * _STATEMENT // timedelta(milliseconds=1)),
            # It compiles what is estimated to be long; our statements are short, whatever the estimate.
            "jit": "off",
            # A page is read in less time than it takes to start a second process for it.
            "max_parallel_workers_per_gather": "0",
            # Lists are walks along an index that end after a page. A planner that expects few rows, because it
            # does not know the label or has no statistics yet, would rather collect them all and sort.
            "enable_bitmapscan": "off",
            "enable_seqscan": "off",
        },
    )


class PostgresqlSession:
    """A connection to PostgreSQL, within a greenlet."""

    combines = True
    is_snapshot = False
    joins = False  # it can, but takes three times as long over it

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.failure: Exception | None = None
        """What the driver raised last: what the work itself raises may be of the same kind."""
        self.has_written = False
        """Whether it was asked to write, successfully or not."""

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        compiled = statement.postgresql
        connection = self._connected()
        try:
            return self._ask(connection.fetch(compiled.text, *compiled.arrange(values)))
        except asyncpg.CharacterNotInRepertoireError:
            # Somebody asks for a text with a NUL in it, which PostgreSQL cannot hold: nothing there has it.
            return ()

    def run(self, statement: Statement, **values: Value) -> int:
        compiled = statement.postgresql
        connection = self._connected()
        self.has_written = True
        try:
            status = self._ask(connection.execute(compiled.text, *compiled.arrange(values)))
        except asyncpg.UniqueViolationError as error:
            raise Duplicate(error.constraint_name) from error
        return int(status.rpartition(" ")[2])

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
        compiled = statement.postgresql
        connection = self._connected()
        self.has_written = True
        self._ask(connection.executemany(compiled.text, [compiled.arrange(each) for each in values]))

    def _connected(self) -> Any:
        return self._connection

    def _ask(self, answer: Coroutine[Any, Any, T]) -> T:
        try:
            return await_only(answer)
        except Exception as error:
            self.failure = error
            raise


class PostgresqlAutocommitSession(PostgresqlSession):
    """A connection outside of any transaction. It is acquired with the first statement: a task that waits for a
    key holds no connection."""

    def __init__(self, acquire: Callable[[], Awaitable[Any]], *, key_locks: KeyLocks) -> None:
        """`acquire` is asked for a connection once at most; giving it back is not this one's business."""
        super().__init__(None)
        self._acquire = acquire
        self._key_locks = key_locks
        self._key_lock: asyncio.Lock | None = None

    def lock_key(self, key: str) -> None:
        self._key_lock = await_only(self._key_locks.acquire(key))

    def unlock_key(self) -> None:
        """Harmless where no key was locked."""
        if self._key_lock is not None:
            self._key_lock.release()
            self._key_lock = None

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = await_only(self._acquire())
        return self._connection

"""PostgreSQL, through a bounded pool of connections that come back by themselves.

Work is a plain function. It runs in a greenlet, so that each statement in it waits without holding up the event
loop, exactly as SQLAlchemy runs its own asynchronous engines. A piece of work that lost a race, or its
connection before the commit, is run again from the start; one whose commit was not answered is not, because it
may have taken effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.util import await_only, greenlet_spawn

from sentinel.drivers.sql import schema
from sentinel.drivers.sql.pool import Pool
from sentinel.drivers.sql.schema import Migration
from sentinel.drivers.sql.statements import Duplicate, Row, Session, Statement, Stretch, Unusable, Value, Walk
from sentinel.ports.fleet_store import Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.secrets import Secret

T = TypeVar("T")

_CONNECT = timedelta(seconds=5)
_STATEMENT = timedelta(seconds=15)
"""What the server allows a statement."""
_WORK = timedelta(seconds=40)
"""What we allow a piece of work: enough that it is the server who gives up, where there is one."""
_ATTEMPTS = 5
_BACKOFF = Backoff(timedelta(milliseconds=10), timedelta(milliseconds=500), jitter=0.5)
_RECOVERY = timedelta(seconds=1)

_RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)
"""The connection is gone, or will be: the network, a restart, a failover. `OSError` includes a timeout."""
_REFUSED = (
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_NEEDS_A_PERSON = (
    ValueError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class _LostBeforeCommit(Exception):
    """Nothing took effect, and trying again may help."""


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
        },
    )


class PostgresqlSession:
    """A connection to PostgreSQL, within a greenlet."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        compiled = statement.postgresql
        try:
            rows: Sequence[Row] = await_only(self._connection.fetch(compiled.text, *compiled.arrange(values)))
        except asyncpg.CharacterNotInRepertoireError:
            # Somebody asks for a text with a NUL in it, which PostgreSQL cannot hold: nothing there has it.
            return ()
        return rows

    def run(self, statement: Statement, **values: Value) -> int:
        compiled = statement.postgresql
        try:
            status = await_only(self._connection.execute(compiled.text, *compiled.arrange(values)))
        except asyncpg.UniqueViolationError as error:
            raise Duplicate(error.constraint_name) from error
        return int(status.rpartition(" ")[2])

    def run_each(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
        compiled = statement.postgresql
        await_only(self._connection.executemany(compiled.text, [compiled.arrange(each) for each in values]))

    def walk(self, walk: Walk, **values: Value) -> Stretch:
        compiled = walk.postgresql
        rows = await_only(self._connection.fetch(compiled.text, *compiled.arrange(values)))
        found = rows[: walk.limit]
        documents = [row[0] for row in found]
        return Stretch(documents, (found[-1][1], found[-1][2]) if len(rows) > len(found) else None)


class PostgresqlDatabase:
    """A PostgreSQL database, with a pool of connections."""

    def __init__(self, dsn: Secret, *, migrate: bool, connections: int) -> None:
        """`dsn` shows itself without its password. Where the tables are older than this program, opening changes
        them if told to `migrate`."""
        self._dsn = dsn
        self._migrate = migrate
        self._connections = connections
        self._redactor = Redactor([dsn.reveal()])
        self._pool: Pool | None = None
        self._trouble: str | None = f"{dsn} is not open"
        self._recovery: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        await self.prepare(migrate=self._migrate)
        self._pool = Pool(self._connect, size=self._connections)
        self._trouble = None

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        recovery, self._recovery = self._recovery, None
        if recovery is not None:
            recovery.cancel()
            await asyncio.wait((recovery,))
        if pool is not None:
            self._trouble = f"{self._dsn} is not open"
            await pool.close()

    async def prepare(self, *, migrate: bool) -> Migration:
        """Sees to the tables. Raises `Unusable`, `Unavailable`."""
        return await self._with_engine(lambda found: schema.prepare(found, where=str(self._dsn), migrate=migrate))

    async def revision(self) -> str | None:
        """The revision of the tables, None where there are none. Changes nothing."""
        return await self._with_engine(schema.revision_of)

    async def read(self, work: Callable[[Session], T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                async with self._acquire() as connection:
                    return await greenlet_spawn(work, PostgresqlSession(connection))
            except _LostBeforeCommit as lost:
                await self._pause(attempt, lost)
        raise AssertionError("the last attempt has raised")

    async def write(self, work: Callable[[Session], T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                async with self._acquire() as connection:
                    await connection.execute("BEGIN")
                    try:
                        result = await greenlet_spawn(work, PostgresqlSession(connection))
                    except Exception:
                        if not connection.is_closed():
                            await connection.execute("ROLLBACK")
                        raise
                    await self._commit(connection)
                    return result
            except _LostBeforeCommit as lost:
                await self._pause(attempt, lost)
        raise AssertionError("the last attempt has raised")

    def trouble(self) -> str | None:
        return self._trouble

    async def _commit(self, connection: Any) -> None:
        try:
            await connection.execute("COMMIT")
        except (*_LOST, TimeoutError) as error:
            raise self._unavailable(error, "the commit was not answered") from error

    async def _connect(self, *_: object, **__: object) -> Any:
        return await connect(self._dsn)

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[Any]:
        """A connection of the pool; what goes wrong with it is told apart from what the work itself raises."""
        pool = self._pool
        if pool is None:
            raise Unavailable(f"{self._dsn} is not open")
        try:
            connection = await pool.acquire()
        except (*_LOST, TimeoutError) as error:
            raise _LostBeforeCommit(self._say(error)) from error
        except (*_REFUSED, *_NEEDS_A_PERSON) as error:
            raise self._unavailable(error) from error
        try:
            async with asyncio.timeout(_WORK.total_seconds()):
                yield connection
        except _RACES as error:
            raise _LostBeforeCommit(self._say(error)) from error
        except asyncpg.QueryCanceledError as error:
            raise self._unavailable(error) from error
        except (*_LOST, TimeoutError) as error:
            connection.terminate()
            pool.distrust()
            raise _LostBeforeCommit(self._say(error)) from error
        except _REFUSED as error:
            raise self._unavailable(error) from error
        except BaseException as error:
            if not isinstance(error, Exception):
                # Cancelled in the middle of something: the server undoes it when the connection is gone.
                connection.terminate()
            raise
        else:
            self._trouble = None
        finally:
            pool.release(connection)

    async def _pause(self, attempt: int, lost: _LostBeforeCommit) -> None:
        if attempt == _ATTEMPTS - 1:
            raise self._unavailable(lost, f"tried {_ATTEMPTS} times") from lost
        await asyncio.sleep(_BACKOFF.delay(attempt, random.random()).total_seconds())  # noqa: S311 - spreads retries

    def _unavailable(self, error: Exception, what: str = "") -> Unavailable:
        reason = f"{self._dsn}: {f'{what}: ' if what else ''}{self._say(error)}"
        self._trouble = reason
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover(), name="postgresql-recovery")
        return Unavailable(reason)

    async def _recover(self) -> None:
        """Asks until there is an answer: readiness would otherwise wait for a request that it keeps away."""
        while self._trouble is not None:
            await asyncio.sleep(_RECOVERY.total_seconds())
            pool = self._pool
            if pool is None:
                return
            try:
                connection = await pool.acquire()
                try:
                    await connection.fetchval("SELECT 1", timeout=_CONNECT.total_seconds())
                finally:
                    pool.release(connection)
            except (*_LOST, *_REFUSED, *_NEEDS_A_PERSON, TimeoutError) as error:
                self._trouble = f"{self._dsn}: {self._say(error)}"
            else:
                self._trouble = None

    async def _with_engine(self, use: Callable[[Any], T]) -> T:
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.ext.asyncio import create_async_engine
        from sqlalchemy.pool import NullPool

        engine = create_async_engine("postgresql+asyncpg://", async_creator=self._connect, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(use)
        except DBAPIError as error:
            raise Unavailable(f"{self._dsn}: {self._say(error)}") from error
        except _NEEDS_A_PERSON as error:
            # Not `from` it: a library that could not read a URL may quote it.
            raise Unusable(f"{self._dsn}: {self._say(error)}") from None
        except (*_LOST, *_REFUSED, TimeoutError) as error:
            raise Unavailable(f"{self._dsn}: {self._say(error)}") from error
        finally:
            await engine.dispose()

    def _say(self, error: BaseException) -> str:
        return self._redactor.redact(str(error) or type(error).__name__)

"""PostgreSQL, through a bounded pool of connections that reconnects automatically.

Work that lost a race, or its connection before the commit, runs again from the start. Work whose commit got no
response does not, because the commit may have taken effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.util import greenlet_spawn

from sentinel.drivers.sql.engine import schema
from sentinel.drivers.sql.engine.announcements import Announcements
from sentinel.drivers.sql.engine.pool import Pool, acquire
from sentinel.drivers.sql.engine.postgresql_session import PostgresqlAutocommitSession, PostgresqlSession, connect
from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.drivers.sql.engine.statements import AutocommitSession, Session
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.key_locks import KeyLocks
from sentinel.runtime.secrets import Redactor, Secret

S = TypeVar("S", bound=PostgresqlSession)
T = TypeVar("T")

_WORK_TIMEOUT = timedelta(seconds=40)
"""Longer than the server's own timeouts, so that it fires only if the server does not respond."""
_KEY_LOCK_TIMEOUT = timedelta(seconds=10)
"""How long a report waits for concurrent reports on the same resource."""
_WRITE_QUEUE_TIMEOUT = timedelta(seconds=60)
"""How long a transaction waits for its turn. Thousands may begin at once, such as when all agents of a hub
reconnect. A caller with less time cancels."""
_MAX_ATTEMPTS = 5
_BACKOFF = Backoff(timedelta(milliseconds=10), timedelta(milliseconds=500), jitter=0.5)
_RECOVERY_INTERVAL = timedelta(seconds=1)
_PING_TIMEOUT = timedelta(seconds=5)

_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)
"""The connection is lost or about to be: the network, a restart, a failover. `OSError` includes a timeout."""
_REJECTED = (
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # The database does not accept connections now.
)
"""The server responds, but refuses for now."""
_MISCONFIGURED = (
    ValueError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.DataError,
    asyncpg.CantChangeRuntimeParamError,
)
"""Errors while connecting that a retry does not fix: missing privileges, bad parameters in the URL."""

_CANNOT_CREATE_TABLES = (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError)


class _LostBeforeCommit(Exception):
    """Nothing took effect, and a retry may succeed."""


class PostgresqlDatabase:
    """A PostgreSQL database, with a pool of connections."""

    def __init__(self, dsn: Secret, *, migrate: bool, connections: int, history: History) -> None:
        """`dsn` prints without its password. With `migrate`, opening upgrades tables older than `history`."""
        self._dsn = dsn
        self._migrate = migrate
        self._history = history
        self._connections = connections
        # A few connections are left for reads, so that they do not wait for a queue of writes.
        self._writers = asyncio.Semaphore(connections - connections // 5)
        self._redactor = Redactor([dsn.reveal()])
        self._pool: Pool | None = None
        self._key_locks = KeyLocks(timeout=_KEY_LOCK_TIMEOUT)
        self._unavailable_reason: str | None = f"{dsn} is not open"
        self._recovery: asyncio.Task[None] | None = None
        self._announcements = Announcements(self)

    async def open(self) -> None:
        if self._pool is not None:
            return
        try:
            await self.prepare(migrate=self._migrate)
        except Unavailable as error:
            self._unavailable_reason = str(error)
            raise
        self._pool = Pool(self.connect, size=self._connections)
        self._unavailable_reason = None

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        await self._announcements.close()
        recovery, self._recovery = self._recovery, None
        if recovery is not None:
            recovery.cancel()
            await asyncio.wait((recovery,))
        if pool is not None:
            self._unavailable_reason = f"{self._dsn} is not open"
            await pool.close()

    async def prepare(self, *, migrate: bool) -> Migration:
        """Check or migrate the tables. Raises `Misconfigured`, `Unavailable`."""
        return await self._with_engine(
            lambda found: schema.prepare(found, where=str(self._dsn), migrate=migrate, history=self._history)
        )

    async def revision(self) -> str | None:
        """The revision of the tables, or None if there are none. Changes nothing."""
        return await self._with_engine(schema.revision_of)

    async def read(self, work: Callable[[Session], T]) -> T:
        return await self._retry(self._read_once, work)

    async def write(self, work: Callable[[Session], T]) -> T:
        try:
            await acquire(self._writers, _WRITE_QUEUE_TIMEOUT)
        except TimeoutError as error:
            seconds = _WRITE_QUEUE_TIMEOUT.total_seconds()
            raise Unavailable(f"{self._dsn}: too many transactions, waited {seconds:g} s") from error
        try:
            return await self._retry(self._write_once, work)
        finally:
            self._writers.release()

    async def write_optimistically(self, work: Callable[[AutocommitSession], T]) -> T:
        return await self._retry(self._write_optimistically_once, work)

    def announce(self, channel: str) -> None:
        self._announcements.announce(channel)

    def listening(self, channel: str) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._announcements.listening(channel)

    def unavailable_reason(self) -> str | None:
        return self._unavailable_reason

    async def _retry(self, attempt: Callable[[Callable[[S], T]], Awaitable[T]], work: Callable[[S], T]) -> T:
        """Attempt the work until it succeeds, fails with an error that a retry does not fix, or too often."""
        for number in range(_MAX_ATTEMPTS - 1):
            try:
                return await attempt(work)
            except _LostBeforeCommit:
                wait = _BACKOFF.delay(number, random.random())  # noqa: S311 - spreads retries
                await asyncio.sleep(wait.total_seconds())
        try:
            return await attempt(work)
        except _LostBeforeCommit as lost:
            raise self._unavailable(lost, f"tried {_MAX_ATTEMPTS} times") from lost

    async def _read_once(self, work: Callable[[PostgresqlSession], T]) -> T:
        async with self._connection() as connection:
            return await self._without_transaction(PostgresqlSession(connection), work)

    async def _write_optimistically_once(self, work: Callable[[PostgresqlAutocommitSession], T]) -> T:
        stack = AsyncExitStack()
        session = PostgresqlAutocommitSession(
            lambda: stack.enter_async_context(self._connection()), key_locks=self._key_locks
        )
        try:
            async with stack:
                return await self._without_transaction(session, work)
        finally:
            session.unlock_key()

    async def _without_transaction(self, session: S, work: Callable[[S], T]) -> T:
        """Run the work in a greenlet; each statement is its own transaction."""
        try:
            return await greenlet_spawn(work, session)
        except Exception as error:
            if error is not session.failure:
                raise
            classified = self._classify(error)
            if session.has_written and isinstance(error, _LOST) and isinstance(classified, _LostBeforeCommit):
                # The statement was its own commit and may have taken effect.
                raise self._unavailable(error, "no response to the write") from error
            raise classified from error

    async def _write_once(self, work: Callable[[PostgresqlSession], T]) -> T:
        async with self._connection() as connection:
            session = PostgresqlSession(connection)
            try:
                await connection.execute("BEGIN")
            except (*_LOST, *_REJECTED) as error:
                raise self._classify(error) from error
            try:
                result = await greenlet_spawn(work, session)
            except Exception as error:
                # If this fails, the pool terminates the connection, and the server rolls back.
                with suppress(*_LOST, *_REJECTED):
                    await connection.execute("ROLLBACK")
                if error is session.failure:
                    raise self._classify(error) from error
                raise
            try:
                await connection.execute("COMMIT")
            except (*_LOST, *_REJECTED) as error:
                raise self._unavailable(error, "no response to the commit") from error
            return result

    def _classify(self, error: Exception) -> Exception:
        """Translate an error of the driver: `_LostBeforeCommit` to retry, `Unavailable`, or itself for a bug."""
        match error:
            case asyncpg.QueryCanceledError() | asyncpg.LockNotAvailableError():
                # One statement timed out; the database itself is fine.
                return Unavailable(f"{self._dsn}: {self._describe(error)}")
            case asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
                return _LostBeforeCommit(self._describe(error))
        if isinstance(error, _LOST):
            if self._pool is not None:
                self._pool.terminate_idle()
            return _LostBeforeCommit(self._describe(error))
        return self._unavailable(error) if isinstance(error, _REJECTED) else error

    async def connect(self) -> Any:
        """Open a connection that is not in the pool. Raises the driver's errors."""
        return await connect(self._dsn)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Acquire a connection for as long as one piece of work may take."""
        pool = self._pool
        if pool is None:
            raise Unavailable(self._unavailable_reason or f"{self._dsn} is not open")
        try:
            connection = await pool.acquire()
        except TimeoutError as error:
            raise self._unavailable(error, "timed out waiting for a free connection") from error
        except _LOST as error:
            raise _LostBeforeCommit(self._describe(error)) from error
        except (*_REJECTED, *_MISCONFIGURED) as error:
            raise self._unavailable(error) from error
        try:
            async with asyncio.timeout(_WORK_TIMEOUT.total_seconds()) as deadline:
                yield connection
            self._unavailable_reason = None
        except TimeoutError as error:
            if not deadline.expired():
                raise
            connection.terminate()
            raise self._unavailable(error, f"no response within {_WORK_TIMEOUT.total_seconds():g} s") from error
        except asyncio.CancelledError:
            # A statement may be running; the server rolls back when the connection is gone.
            connection.terminate()
            raise
        finally:
            pool.release(connection)

    def _unavailable(self, error: Exception, what: str = "") -> Unavailable:
        reason = f"{self._dsn}: {f'{what}: ' if what else ''}{self._describe(error)}"
        self._unavailable_reason = reason
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._recover(), name="postgresql-recovery")
        return Unavailable(reason)

    async def _recover(self) -> None:
        """Ping until the server responds: while not ready, no request would come to show that it has recovered."""
        while self._unavailable_reason is not None:
            await asyncio.sleep(_RECOVERY_INTERVAL.total_seconds())
            pool = self._pool
            if pool is None:
                return
            try:
                connection = await pool.acquire()
                try:
                    await connection.fetchval("SELECT 1", timeout=_PING_TIMEOUT.total_seconds())
                finally:
                    pool.release(connection)
            except (*_LOST, *_REJECTED, *_MISCONFIGURED) as error:
                self._unavailable_reason = f"{self._dsn}: {self._describe(error)}"
            else:
                self._unavailable_reason = None

    async def _with_engine(self, use: Callable[[Any], T]) -> T:
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.ext.asyncio import create_async_engine
        from sqlalchemy.pool import NullPool

        engine = create_async_engine("postgresql+asyncpg://", async_creator=self.connect, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(use)
        except DBAPIError as error:
            # SQLAlchemy's text quotes the statement over several lines; its cause has the server's message.
            cause = (error.orig and error.orig.__cause__) or error
            kind = Misconfigured if isinstance(cause, _CANNOT_CREATE_TABLES) else Unavailable
            raise kind(f"{self._dsn}: {self._describe(cause)}") from error
        except _MISCONFIGURED as error:
            # Not `from error`: a library that cannot parse the URL may quote it.
            raise Misconfigured(f"{self._dsn}: {self._describe(error)}") from None
        except (*_LOST, *_REJECTED) as error:
            raise Unavailable(f"{self._dsn}: {self._describe(error)}") from error
        finally:
            await engine.dispose()

    def _describe(self, error: BaseException) -> str:
        return self._redactor.redact(str(error) or type(error).__name__)

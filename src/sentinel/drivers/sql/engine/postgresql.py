"""PostgreSQL, through a bounded pool of connections that come back by themselves.

A piece of work that lost a race, or its connection before the commit, is run again from the start; one whose
commit was not answered is not, because it may have taken effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.util import greenlet_spawn

from sentinel.drivers.sql.engine import schema
from sentinel.drivers.sql.engine.key_locks import KeyLocks
from sentinel.drivers.sql.engine.pool import Pool
from sentinel.drivers.sql.engine.postgresql_session import PostgresqlAutocommitSession, PostgresqlSession, connect
from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.drivers.sql.engine.statements import AutocommitSession, NeedsTransaction, Session
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.secrets import Secret

S = TypeVar("S", bound=PostgresqlSession)
T = TypeVar("T")

_WORK = timedelta(seconds=40)
"""What we allow a piece of work: enough that it is the server who gives up, where there is one."""
_KEY_LOCK = timedelta(seconds=10)
"""What we allow those who report on the same resource at once, before one of them is told to come back."""
_ATTEMPTS = 5
_BACKOFF = Backoff(timedelta(milliseconds=10), timedelta(milliseconds=500), jitter=0.5)
_RECOVERY = timedelta(seconds=1)
_PING = timedelta(seconds=5)

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
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # a database that takes no connections for the time being
)
_NEEDS_A_PERSON = (
    ValueError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.DataError,
    asyncpg.CantChangeRuntimeParamError,
)
"""Of those who connect: privileges that are missing, and parameters of a URL that the server does not take."""

_NO_PLACE_FOR_TABLES = (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError)


class _LostBeforeCommit(Exception):
    """Nothing took effect, and trying again may help."""


class PostgresqlDatabase:
    """A PostgreSQL database, with a pool of connections."""

    def __init__(self, dsn: Secret, *, migrate: bool, connections: int, history: History) -> None:
        """`dsn` shows itself without its password. Where the tables are older than `history`, opening changes them
        if told to `migrate`."""
        self._dsn = dsn
        self._migrate = migrate
        self._history = history
        self._connections = connections
        self._redactor = Redactor([dsn.reveal()])
        self._pool: Pool | None = None
        self._key_locks = KeyLocks(timeout=_KEY_LOCK)
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
        """Checks or migrates the tables. Raises `Misconfigured`, `Unavailable`."""
        return await self._with_engine(
            lambda found: schema.prepare(found, where=str(self._dsn), migrate=migrate, history=self._history)
        )

    async def revision(self) -> str | None:
        """The revision of the tables, None where there are none. Changes nothing."""
        return await self._with_engine(schema.revision_of)

    async def read(self, work: Callable[[Session], T]) -> T:
        return await self._persist(self._read_once, work)

    async def write(
        self, work: Callable[[Session], T], *, briefly: Callable[[AutocommitSession], T] | None = None
    ) -> T:
        if briefly is not None:
            with suppress(NeedsTransaction):
                return await self._persist(self._write_briefly, briefly)
        return await self._persist(self._write_once, work)

    def trouble(self) -> str | None:
        return self._trouble

    async def _persist(self, attempt: Callable[[Callable[[S], T]], Awaitable[T]], work: Callable[[S], T]) -> T:
        """Tries until it is done, or there is no point in trying again."""
        for number in range(_ATTEMPTS - 1):
            try:
                return await attempt(work)
            except _LostBeforeCommit:
                wait = _BACKOFF.delay(number, random.random())  # noqa: S311 - it spreads retries
                await asyncio.sleep(wait.total_seconds())
        try:
            return await attempt(work)
        except _LostBeforeCommit as lost:
            raise self._unavailable(lost, f"tried {_ATTEMPTS} times") from lost

    async def _read_once(self, work: Callable[[PostgresqlSession], T]) -> T:
        async with self._connection() as connection:
            return await self._without_transaction(PostgresqlSession(connection), work)

    async def _write_briefly(self, work: Callable[[PostgresqlAutocommitSession], T]) -> T:
        held = AsyncExitStack()
        session = PostgresqlAutocommitSession(
            lambda: held.enter_async_context(self._connection()), key_locks=self._key_locks
        )
        try:
            async with held:
                return await self._without_transaction(session, work)
        finally:
            session.unlock_key()

    async def _without_transaction(self, session: S, work: Callable[[S], T]) -> T:
        """Every statement is one of its own."""
        try:
            return await greenlet_spawn(work, session)
        except Exception as error:
            if error is not session.failure:
                raise
            judged = self._judge(error)
            if session.has_written and isinstance(error, _LOST) and isinstance(judged, _LostBeforeCommit):
                # The statement was its own commit, and may have taken effect.
                raise self._unavailable(error, "the write was not answered") from error
            raise judged from error

    async def _write_once(self, work: Callable[[PostgresqlSession], T]) -> T:
        async with self._connection() as connection:
            return await self._within_transaction(connection, work)

    async def _within_transaction(self, connection: Any, work: Callable[[PostgresqlSession], T]) -> T:
        session = PostgresqlSession(connection)
        try:
            await connection.execute("BEGIN")
        except (*_LOST, *_REFUSED) as error:
            raise self._judge(error) from error
        try:
            result = await greenlet_spawn(work, session)
        except Exception as error:
            # Where this fails, the connection is cut when it is given back, and the server undoes everything.
            with suppress(*_LOST, *_REFUSED):
                await connection.execute("ROLLBACK")
            if error is session.failure:
                raise self._judge(error) from error
            raise
        try:
            await connection.execute("COMMIT")
        except (*_LOST, *_REFUSED) as error:
            raise self._unavailable(error, "the commit was not answered") from error
        return result

    def _judge(self, error: Exception) -> Exception:
        """What to make of an error of the driver's: to be tried again, to be told, or a bug of our own."""
        match error:
            case asyncpg.QueryCanceledError() | asyncpg.LockNotAvailableError():
                # One statement took too long; that says nothing of the next.
                return Unavailable(f"{self._dsn}: {self._say(error)}")
            case asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
                return _LostBeforeCommit(self._say(error))
        if isinstance(error, _LOST):
            if self._pool is not None:
                self._pool.distrust()
            return _LostBeforeCommit(self._say(error))
        return self._unavailable(error) if isinstance(error, _REFUSED) else error

    async def _connect(self) -> Any:
        return await connect(self._dsn)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """A connection of the pool, for so long as a piece of work may take."""
        pool = self._pool
        if pool is None:
            raise Unavailable(f"{self._dsn} is not open")
        try:
            connection = await pool.acquire()
        except TimeoutError as error:
            raise self._unavailable(error, "no connection in time") from error
        except _LOST as error:
            raise _LostBeforeCommit(self._say(error)) from error
        except (*_REFUSED, *_NEEDS_A_PERSON) as error:
            raise self._unavailable(error) from error
        try:
            async with asyncio.timeout(_WORK.total_seconds()) as deadline:
                yield connection
            self._trouble = None
        except TimeoutError as error:
            if not deadline.expired():
                raise
            connection.terminate()
            raise self._unavailable(error, f"no answer within {_WORK.total_seconds():g} s") from error
        except asyncio.CancelledError:
            # In the middle of something: the server undoes it when the connection is gone.
            connection.terminate()
            raise
        finally:
            pool.release(connection)

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
                    await connection.fetchval("SELECT 1", timeout=_PING.total_seconds())
                finally:
                    pool.release(connection)
            except (*_LOST, *_REFUSED, *_NEEDS_A_PERSON) as error:
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
            # Its own text quotes the statement over several lines; what the server said stands underneath.
            said = (error.orig and error.orig.__cause__) or error
            kind = Misconfigured if isinstance(said, _NO_PLACE_FOR_TABLES) else Unavailable
            raise kind(f"{self._dsn}: {self._say(said)}") from error
        except _NEEDS_A_PERSON as error:
            # Not `from` it: a library that could not read a URL may quote it.
            raise Misconfigured(f"{self._dsn}: {self._say(error)}") from None
        except (*_LOST, *_REFUSED) as error:
            raise Unavailable(f"{self._dsn}: {self._say(error)}") from error
        finally:
            await engine.dispose()

    def _say(self, error: BaseException) -> str:
        return self._redactor.redact(str(error) or type(error).__name__)

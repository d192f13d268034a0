"""PostgreSQL through our pool and compiled statements, against asyncpg's pool and SQLAlchemy's engine.

The figures are the CPU of this process. The server does the same work each way.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.util import greenlet_spawn

from bench import parts_tables
from bench.alternating import OURS, SQLALCHEMY, Variant, cheapest
from bench.parts_tables import DOCUMENT, READ, READING, UPDATE, UPDATING
from sentinel.drivers.sql.engine.pool import Pool
from sentinel.drivers.sql.engine.postgresql_session import PostgresqlSession, connect
from sentinel.runtime.secrets import Secret
from tests.support.databases.postgresql import database
from tools.services.postgresql import POSTGRESQL_URL_VARIABLE

BARE_POOL = "asyncpg's pool without reset"

_ROUNDS = 60
_TIMES = 100
_CONNECTIONS = 10


class PostgresqlFigures(msgspec.Struct, frozen=True):
    """CPU microseconds, by implementation."""

    pool: Mapping[str, float]
    """Acquire a connection, fetch one small row, release it."""
    read_statement: Mapping[str, float]
    update_statement: Mapping[str, float]


async def measure() -> PostgresqlFigures:
    """Measure in a new database."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(database(os.environ[POSTGRESQL_URL_VARIABLE]))
        connection = await connect(Secret(url))
        stack.push_async_callback(connection.close)
        await parts_tables.fill_postgresql(connection)
        engine = create_async_engine(
            url.replace("postgresql:", "postgresql+asyncpg:", 1), isolation_level="AUTOCOMMIT"
        )
        stack.push_async_callback(engine.dispose)
        through = await stack.enter_async_context(engine.connect())
        return PostgresqlFigures(
            pool=await _pools(url),
            read_statement=await _read_statement(connection, through),
            update_statement=await _update_statement(connection, through),
        )


async def _pools(url: str) -> dict[str, float]:
    async def connected() -> Any:
        return await connect(Secret(url))

    async def no_reset(connection: object) -> None:
        """asyncpg's reset sends a statement that undoes session settings."""

    ours = Pool(connected, size=_CONNECTIONS)
    theirs = await asyncpg.create_pool(url, min_size=1, max_size=_CONNECTIONS)
    bare = await asyncpg.create_pool(url, min_size=1, max_size=_CONNECTIONS, reset=no_reset)

    @asynccontextmanager
    async def from_ours() -> AsyncIterator[Any]:
        connection = await ours.acquire()
        try:
            yield connection
        finally:
            ours.release(connection)

    def variant(take: Callable[[], Any]) -> Variant:
        async def several() -> int:
            for _ in range(_TIMES):
                async with take() as connection:
                    await connection.fetch("SELECT 1")
            return _TIMES

        return several

    try:
        return await cheapest(
            {
                OURS: variant(from_ours),
                BARE_POOL: variant(bare.acquire),
                "asyncpg's pool": variant(theirs.acquire),
            },
            rounds=_ROUNDS,
        )
    finally:
        await ours.close()
        await theirs.close()
        await bare.close()


async def _read_statement(connection: Any, through: AsyncConnection) -> dict[str, float]:
    """Measure one statement in a greenlet, through our session and through SQLAlchemy's engine."""
    wanted = parts_tables.resource_id(7)

    async def ours() -> int:
        for _ in range(_TIMES):
            await greenlet_spawn(PostgresqlSession(connection).rows, READ, wanted=wanted)
        return _TIMES

    async def theirs() -> int:
        for _ in range(_TIMES):
            (await through.execute(READING, {"wanted": wanted})).fetchall()
        return _TIMES

    return await cheapest({OURS: ours, SQLALCHEMY: theirs}, rounds=_ROUNDS)


async def _update_statement(connection: Any, through: AsyncConnection) -> dict[str, float]:
    changed: dict[str, Any] = {"wanted": parts_tables.resource_id(7), "version": 3, "document": DOCUMENT}

    async def ours() -> int:
        for _ in range(_TIMES):
            await greenlet_spawn(PostgresqlSession(connection).run, UPDATE, **changed)
        return _TIMES

    async def theirs() -> int:
        for _ in range(_TIMES):
            await through.execute(UPDATING, changed)
        return _TIMES

    return await cheapest({OURS: ours, SQLALCHEMY: theirs}, rounds=_ROUNDS)

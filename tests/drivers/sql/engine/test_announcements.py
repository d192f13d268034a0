"""Announcements between processes on one PostgreSQL, and within one on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.history import HISTORY
from tests.support.databases import postgresql
from tests.support.fleet.store_records import TIMEOUT

CHANNEL = "things"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlDatabase]:
    database = engine.database(url, migrate=True, history=HISTORY)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def connected(database: SqlDatabase) -> AsyncIterator[asyncio.Event]:
    """Listen with a connection that is established: it sets the event, because it may have missed something."""
    async with database.listening(CHANNEL) as event:
        await is_set(event)
        yield event


async def is_set(event: asyncio.Event) -> None:
    """Wait until the event is set, and clear it."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        await event.wait()
    event.clear()


async def test_on_postgresql_other_processes_are_woken(fresh_postgresql_database: str) -> None:
    url = fresh_postgresql_database
    async with opened(url) as here, opened(url) as there, connected(there) as event:
        for _ in range(3):
            here.announce(CHANNEL)
            await is_set(event)


async def test_on_postgresql_the_own_process_is_woken_at_once(fresh_postgresql_database: str) -> None:
    async with opened(fresh_postgresql_database) as database, connected(database) as event:
        database.announce(CHANNEL)

        assert event.is_set()


async def test_on_postgresql_other_channels_are_not_woken(fresh_postgresql_database: str) -> None:
    url = fresh_postgresql_database
    async with opened(url) as here, opened(url) as there, connected(there) as event:
        async with there.listening("others") as others:
            await is_set(others)
            here.announce("others")
            await is_set(others)

        assert not event.is_set()


async def test_on_postgresql_a_lost_connection_is_replaced(fresh_postgresql_database: str) -> None:
    url = fresh_postgresql_database
    async with opened(url) as here, opened(url) as there, connected(there) as event:
        await postgresql.execute(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'",
        )

        await is_set(event)
        here.announce(CHANNEL)
        await is_set(event)


async def test_on_sqlite_the_process_is_woken_at_once(tmp_path: Path) -> None:
    async with (
        opened(f"sqlite:///{tmp_path / 'fleet.db'}") as database,
        database.listening(CHANNEL) as event,
        database.listening("others") as others,
    ):
        database.announce(CHANNEL)

        assert (event.is_set(), others.is_set()) == (True, False)

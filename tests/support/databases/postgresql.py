"""A real PostgreSQL, as tests need it: databases of their own, and a look behind the store's back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from tests.support.databases.all_tables import TABLES

T = TypeVar("T")
Connection: TypeAlias = Any
"""One of asyncpg's."""


@contextmanager
def database(server: str) -> Iterator[str]:
    """A database without a table; its URL."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    run(execute(server, f"CREATE DATABASE {name}"))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        run(execute(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def connect(url: str) -> Connection:
    """A connection past the store, for whoever closes it."""
    return await asyncpg.connect(url)


async def execute(url: str, statement: str) -> None:
    """Runs one statement, past the store."""
    connection = await connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def fetch(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement, past the store."""
    connection = await connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def once_it_waits(url: str, what: str = "pid") -> None:
    """Asks this of the connection of ours that waits for a lock, as soon as there is one."""
    for _ in range(1_000):
        found = await fetch(
            url,
            f"SELECT {what} FROM pg_stat_activity "  # noqa: S608 - a constant of a test
            "WHERE application_name = 'sentinel' AND datname = current_database() AND wait_event_type = 'Lock'",
        )
        if found:
            return
    raise AssertionError("nobody waits for a lock")


async def empty(url: str) -> None:
    """Removes every row; the tables are there."""
    await execute(url, f"TRUNCATE {', '.join(TABLES.tables)} RESTART IDENTITY")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Fixtures of a whole session belong to no event loop, and some are made while one runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()

"""A real PostgreSQL: databases for single tests, and statements that bypass the store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import MetaData

from sentinel.drivers.sql import audit, idempotency
from sentinel.drivers.sql.fleet import tables as fleet
from sentinel.drivers.sql.hub import rollout_tables, signing_keys
from sentinel.drivers.sql.hub import secrets as hub_secrets
from sentinel.drivers.sql.hub import tables as hub
from sentinel.drivers.sql.hub import webhooks as hub_webhooks
from sentinel.drivers.sql.identity import tables as identity

T = TypeVar("T")
Connection: TypeAlias = Any
"""asyncpg's, which has no types."""

TABLES = MetaData()
"""The tables of all components, as their modules define them."""
for _metadata in (
    audit.metadata,
    fleet.metadata,
    hub.metadata,
    hub_secrets.metadata,
    hub_webhooks.metadata,
    idempotency.metadata,
    identity.metadata,
    rollout_tables.metadata,
    signing_keys.metadata,
):
    for _table in _metadata.sorted_tables:
        _table.to_metadata(TABLES)


@contextmanager
def database(server: str) -> Iterator[str]:
    """Create a database without tables, and yield its URL."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    run(execute(server, f"CREATE DATABASE {name}"))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        run(execute(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def connect(url: str) -> Connection:
    """Open a connection that bypasses the store."""
    return await asyncpg.connect(url)


async def execute(url: str, statement: str) -> None:
    """Run one statement, bypassing the store."""
    connection = await connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def fetch(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of one statement, bypassing the store."""
    connection = await connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def wait_for_blocked(url: str, expression: str = "pid", *, count: int = 1) -> None:
    """Wait until so many connections of the store are blocked by a lock, then evaluate an expression on them."""
    for _ in range(1_000):
        found = await fetch(
            url,
            f"SELECT {expression} FROM pg_stat_activity "  # noqa: S608 - a constant of a test
            "WHERE application_name = 'sentinel' AND datname = current_database() AND wait_event_type = 'Lock'",
        )
        if len(found) >= count:
            return
    raise AssertionError(f"expected {count} connections that are blocked by a lock")


async def empty(url: str) -> None:
    """Delete all rows of all tables, except those that migrations insert."""
    emptied = TABLES.tables.keys() - {identity.revisions.name, "fleet_change_log", hub.log.name}
    await execute(url, f"TRUNCATE {', '.join(emptied)} RESTART IDENTITY")
    await execute(url, "UPDATE fleet_change_log SET expired = 0")
    await execute(url, "UPDATE hub_log SET number = 0")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own loop and thread: some session fixtures are made while a loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()

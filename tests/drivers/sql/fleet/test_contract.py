"""The fleet in SQLite and in PostgreSQL: the contract that the store in memory passes, too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.ports.fleet_store import FleetStore
from tests.contract.fleet_store import FleetStoreContract, Stores
from tests.support import postgresql


async def opened(url: str) -> SqlFleetStore:
    store = SqlFleetStore(engine.database(url, migrate=True))
    await store.open()
    return store


class SqliteStores(Stores):
    def __init__(self, directory: Path) -> None:
        self._files = (directory / f"{number}.db" for number in itertools.count())
        self._url = ""

    async def empty(self) -> FleetStore:
        self._url = f"sqlite:///{next(self._files)}"
        return await opened(self._url)

    async def reopened(self, store: FleetStore) -> FleetStore:
        await store.close()
        return await opened(self._url)


class PostgresqlStores(Stores):
    def __init__(self, url: str) -> None:
        self._url = url

    async def empty(self) -> FleetStore:
        store = await opened(self._url)
        await postgresql.empty(self._url)
        return store

    async def reopened(self, store: FleetStore) -> FleetStore:
        await store.close()
        return await opened(self._url)


class TestSqlite(FleetStoreContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> SqliteStores:
        return SqliteStores(tmp_path)


class TestPostgresql(FleetStoreContract):
    @pytest.fixture
    def stores(self, postgresql_database: str) -> PostgresqlStores:
        return PostgresqlStores(postgresql_database)

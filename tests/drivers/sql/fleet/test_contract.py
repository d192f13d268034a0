"""The fleet in SQLite and in PostgreSQL: the contract that the store in memory passes, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.fleet_store import FleetStoreContract
from tests.support.databases.contract_databases import PostgresqlStores, SqliteStores


class TestSqlite(FleetStoreContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> SqliteStores:
        return SqliteStores(tmp_path)


class TestPostgresql(FleetStoreContract):
    @pytest.fixture
    def stores(self, postgresql_database: str) -> PostgresqlStores:
        return PostgresqlStores(postgresql_database)

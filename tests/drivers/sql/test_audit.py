"""The audit in SQLite and in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.audit import AuditContract
from tests.support.databases.contract_databases import PostgresqlStores, SqliteStores


class TestSqlite(AuditContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> SqliteStores:
        return SqliteStores(tmp_path)


class TestPostgresql(AuditContract):
    @pytest.fixture
    def stores(self, postgresql_database: str) -> PostgresqlStores:
        return PostgresqlStores(postgresql_database)

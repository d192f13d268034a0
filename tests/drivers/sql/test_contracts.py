"""The stores on SQLite and PostgreSQL keep the promises of their ports, as those in memory do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.audit import AuditContract
from tests.contract.change_log import ChangeLogContract
from tests.contract.fleet_store import FleetStoreContract
from tests.contract.hub_store import HubStoreContract
from tests.contract.hub_store_model import HubModelContract
from tests.contract.idempotency import IdempotencyContract
from tests.contract.identity_store import IdentityStoreContract
from tests.contract.secret_store import SecretStoreContract
from tests.contract.signing_keys import SigningKeysContract
from tests.contract.webhook_store import WebhookStoreContract
from tests.drivers.sql.contract_databases import PostgresqlStores, SqliteStores


class OnSqlite:
    @pytest.fixture
    def stores(self, tmp_path: Path) -> SqliteStores:
        return SqliteStores(tmp_path)


class OnPostgresql:
    @pytest.fixture
    def stores(self, postgresql_database: str) -> PostgresqlStores:
        return PostgresqlStores(postgresql_database)


class TestFleetStoreOnSqlite(OnSqlite, FleetStoreContract): ...


class TestFleetStoreOnPostgresql(OnPostgresql, FleetStoreContract): ...


class TestAuditOnSqlite(OnSqlite, AuditContract): ...


class TestAuditOnPostgresql(OnPostgresql, AuditContract): ...


class TestIdempotencyOnSqlite(OnSqlite, IdempotencyContract): ...


class TestIdempotencyOnPostgresql(OnPostgresql, IdempotencyContract): ...


class TestIdentityStoreOnSqlite(OnSqlite, IdentityStoreContract): ...


class TestIdentityStoreOnPostgresql(OnPostgresql, IdentityStoreContract): ...


class TestChangeLogOnSqlite(OnSqlite, ChangeLogContract): ...


class TestChangeLogOnPostgresql(OnPostgresql, ChangeLogContract): ...


class TestHubStoreOnSqlite(OnSqlite, HubStoreContract, HubModelContract): ...


class TestHubStoreOnPostgresql(OnPostgresql, HubStoreContract, HubModelContract): ...


class TestSecretStoreOnSqlite(OnSqlite, SecretStoreContract): ...


class TestSecretStoreOnPostgresql(OnPostgresql, SecretStoreContract): ...


class TestSigningKeysOnSqlite(OnSqlite, SigningKeysContract): ...


class TestSigningKeysOnPostgresql(OnPostgresql, SigningKeysContract): ...


class TestWebhookStoreOnSqlite(OnSqlite, WebhookStoreContract): ...


class TestWebhookStoreOnPostgresql(OnPostgresql, WebhookStoreContract): ...

"""The stores in memory keep the promises of their ports, as those in SQL do."""

from __future__ import annotations

import pytest

from tests.contract.audit import AuditContract
from tests.contract.change_log import ChangeLogContract
from tests.contract.fleet_store import FleetStoreContract
from tests.contract.hub_store import HubStoreContract
from tests.contract.idempotency import IdempotencyContract
from tests.contract.identity_store import IdentityStoreContract
from tests.contract.secret_store import SecretStoreContract
from tests.contract.signing_keys import SigningKeysContract
from tests.contract.webhook_store import WebhookStoreContract
from tests.support.fleet.store_records import MemoryStores


class InMemory:
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()


class TestMemoryFleetStore(InMemory, FleetStoreContract): ...


class TestMemoryAuditLog(InMemory, AuditContract): ...


class TestMemoryIdempotencyStore(InMemory, IdempotencyContract): ...


class TestMemoryIdentityStore(InMemory, IdentityStoreContract): ...


class TestMemoryChangeLog(InMemory, ChangeLogContract): ...


class TestMemoryHubStore(InMemory, HubStoreContract): ...


class TestMemorySecretStore(InMemory, SecretStoreContract): ...


class TestMemorySigningKeys(InMemory, SigningKeysContract): ...


class TestMemoryWebhookStore(InMemory, WebhookStoreContract): ...

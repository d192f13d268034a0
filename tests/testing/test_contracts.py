"""The stores in memory keep the promises of their ports, as those in SQL do."""

from __future__ import annotations

import pytest

from tests.contract.audit import AuditContract
from tests.contract.fleet_store import FleetStoreContract
from tests.contract.idempotency import IdempotencyContract
from tests.support.fleet.store_records import MemoryStores


class InMemory:
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()


class TestMemoryFleetStore(InMemory, FleetStoreContract): ...


class TestMemoryAuditLog(InMemory, AuditContract): ...


class TestMemoryIdempotencyStore(InMemory, IdempotencyContract): ...

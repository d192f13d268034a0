"""The audit in memory."""

from __future__ import annotations

import pytest

from tests.contract.audit import AuditContract
from tests.support.fleet.store_records import MemoryStores


class TestMemoryAuditLog(AuditContract):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()

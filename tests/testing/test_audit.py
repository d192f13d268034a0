"""The audit in memory."""

from __future__ import annotations

import pytest

from tests.contract.audit import AuditContract
from tests.support.fleet_stores import MemoryStores


class TestMemoryAuditLog(AuditContract):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()

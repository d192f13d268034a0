"""Idempotency keys in memory."""

from __future__ import annotations

import pytest

from tests.contract.idempotency import IdempotencyContract
from tests.support.fleet_stores import MemoryStores


class TestMemoryIdempotencyStore(IdempotencyContract):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()

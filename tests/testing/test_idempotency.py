"""Idempotency keys in memory."""

from __future__ import annotations

import pytest

from tests.contract.idempotency import IdempotencyContract
from tests.support.fleet.store_records import MemoryStores


class TestMemoryIdempotencyStore(IdempotencyContract):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()

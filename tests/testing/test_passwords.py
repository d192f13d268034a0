"""Passwords in memory keep the promises of the port."""

from __future__ import annotations

import pytest

from sentinel.testing.passwords import MemoryPasswordHasher
from tests.contract.passwords import PasswordHasherContract


class TestMemoryPasswordHasher(PasswordHasherContract):
    @pytest.fixture
    def hasher(self) -> MemoryPasswordHasher:
        return MemoryPasswordHasher()

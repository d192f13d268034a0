"""Identities in memory: the contract, and injected failures."""

from __future__ import annotations

import secrets

import pytest

from sentinel.core.access import Identity, Role
from sentinel.ports.errors import Unavailable
from sentinel.testing.identities import MemoryIdentities
from tests.contract.identities import IdentitiesContract, IdentitiesHarness


class MemoryHarness(IdentitiesHarness):
    def __init__(self) -> None:
        self._identities = MemoryIdentities()

    @property
    def identities(self) -> MemoryIdentities:
        return self._identities

    def issue(self, identity: Identity) -> str:
        token = f"snt_{secrets.token_hex(16)}"
        self._identities.known[token] = identity
        return token

    def withdraw_all(self) -> None:
        self._identities.known.clear()


class TestMemoryIdentities(IdentitiesContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


async def test_a_failing_source_is_unavailable() -> None:
    ops = Identity("ops", Role.OPERATOR)
    identities = MemoryIdentities({"token": ops})
    identities.unavailable_reason = "connection refused"

    with pytest.raises(Unavailable, match="connection refused"):
        await identities.identify("token")
    identities.unavailable_reason = ""

    assert await identities.identify("token") == ops
    assert identities.calls == 2

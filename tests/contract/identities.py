"""The contract of `ports.identity.Identities`, for every implementation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import pytest

from sentinel.core.access import Identity, Role
from sentinel.ports.identity import Identities

EVERY_KIND = [
    *(Identity(f"{role}-1", role) for role in Role if role is not Role.ADAPTER),
    Identity("dns-1", Role.ADAPTER, adapter="dns"),
    Identity("edge-1", Role.AGENT, instance="edge-1"),
]


class IdentitiesHarness(ABC):
    """A source of identities. Issuing and withdrawing tokens takes effect before the call returns."""

    @property
    @abstractmethod
    def identities(self) -> Identities: ...

    @abstractmethod
    def issue(self, identity: Identity) -> str:
        """Return a new token of this identity."""

    @abstractmethod
    def withdraw_all(self) -> None:
        """Make every token issued so far invalid."""


class IdentitiesContract:
    """Subclasses define a fixture `harness`."""

    @pytest.mark.parametrize("identity", EVERY_KIND)
    async def test_a_token_gives_its_identity_with_the_attributes_of_its_role(
        self, harness: IdentitiesHarness, identity: Identity
    ) -> None:
        token = harness.issue(identity)

        assert await harness.identities.identify(token) == identity

    async def test_concurrent_calls_identify_each_token(self, harness: IdentitiesHarness) -> None:
        tokens = [harness.issue(identity) for identity in EVERY_KIND]

        found = await asyncio.gather(*map(harness.identities.identify, [*tokens, *reversed(tokens)]))

        assert found == [*EVERY_KIND, *reversed(EVERY_KIND)]

    async def test_one_name_may_have_several_tokens(self, harness: IdentitiesHarness) -> None:
        tokens = harness.issue(Identity("ops", Role.ADMIN)), harness.issue(Identity("ops", Role.VIEWER))

        found = [await harness.identities.identify(token) for token in tokens]

        assert found == [Identity("ops", Role.ADMIN), Identity("ops", Role.VIEWER)]

    @pytest.mark.parametrize(
        "token",
        ["", " ", "a", "a.b.c", "..", "ops-1", "anonymous", "nobody", "\0", "é.é.é", "snt_", "{}", "a" * 100_000],
    )
    async def test_a_token_that_was_not_issued_is_unknown(self, harness: IdentitiesHarness, token: str) -> None:
        harness.issue(Identity("ops-1", Role.OPERATOR))

        assert await harness.identities.identify(token) is None

    async def test_a_slightly_changed_token_is_unknown(self, harness: IdentitiesHarness) -> None:
        token = harness.issue(Identity("ops-1", Role.OPERATOR))
        middle = len(token) // 2
        other = "A" if token[middle] != "A" else "B"

        for changed in (
            token[:-1],
            token[1:],
            f"{token}A",
            f" {token}",
            token.swapcase(),
            f"{token[:middle]}{other}{token[middle + 1 :]}",
        ):
            assert await harness.identities.identify(changed) is None, changed

    async def test_a_withdrawn_token_is_unknown(self, harness: IdentitiesHarness) -> None:
        before = harness.issue(Identity("ops-1", Role.OPERATOR))
        assert await harness.identities.identify(before) is not None

        harness.withdraw_all()
        after = harness.issue(Identity("ops-1", Role.OPERATOR))

        assert await harness.identities.identify(before) is None
        assert await harness.identities.identify(after) is not None

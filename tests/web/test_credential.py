"""A handler can ask whether the token of its request is still valid."""

from __future__ import annotations

import hashlib
from pathlib import Path

import jwt

from sentinel.core.access import Action, Identity, Role
from sentinel.drivers.identity.jwt import JwtKey
from sentinel.testing.identities import MemoryIdentities
from sentinel.web.credential import NO_TOKEN
from sentinel.web.identity import UNAUTHENTICATED, Guard

OPS = Identity("ops", Role.OPERATOR)
HEADERS = {"authorization": "Bearer ops-token"}


async def test_a_credential_is_valid_until_its_token_is_revoked() -> None:
    identities = MemoryIdentities({"ops-token": OPS})
    credential = Guard(identities=[identities]).credential(OPS, HEADERS)

    before = await credential.is_valid()
    identities.known.clear()

    assert (before, await credential.is_valid()) == (True, False)


async def test_a_credential_ends_when_its_token_gets_another_role() -> None:
    identities = MemoryIdentities({"ops-token": OPS})
    credential = Guard(identities=[identities]).credential(OPS, HEADERS)
    identities.known["ops-token"] = Identity("ops", Role.VIEWER)

    assert not await credential.is_valid()


async def test_the_credential_of_a_web_token_ends_at_its_exp(tmp_path: Path) -> None:
    secret, now = b"0123456789abcdef0123456789abcdef", 1_000.0
    (tmp_path / "key").write_bytes(secret)
    token = jwt.encode({"sub": "ops", "role": "operator", "exp": 1_010}, secret, algorithm="HS256")
    guard = Guard(identities=[JwtKey(tmp_path / "key", now=lambda: now)])
    credential = guard.credential(OPS, {"authorization": f"Bearer {token}"})

    now = 1_009.0
    before = await credential.is_valid()
    now = 1_010.0

    assert (before, await credential.is_valid()) == (True, False)


async def test_an_outage_does_not_end_a_credential() -> None:
    identities = MemoryIdentities({"ops-token": OPS})
    credential = Guard(identities=[identities]).credential(OPS, HEADERS)
    identities.unavailable_reason = "the database restarts"

    assert await credential.is_valid()


async def test_requests_without_a_token_have_a_credential_that_never_ends() -> None:
    guard = Guard(identities=[], is_insecure=True)

    credential = guard.credential(await guard.identify(Action("x.y"), {"host": "localhost"}), {})

    assert credential is guard.credential(UNAUTHENTICATED, HEADERS) is NO_TOKEN
    assert await credential.is_valid()
    assert credential.digest == b""


def test_a_credential_shows_only_the_hash_of_its_token() -> None:
    credential = Guard(identities=[MemoryIdentities()]).credential(OPS, HEADERS)

    assert credential.digest == hashlib.sha256(b"ops-token").digest()
    assert "ops-token" not in repr(credential)

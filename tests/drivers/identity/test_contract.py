"""Tokens files, JSON web tokens and tokens in a database keep the promises of the identity port."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest

from sentinel.core.access import Identity
from sentinel.drivers.identity.jwt import JwtKey
from sentinel.drivers.identity.stored_tokens import CHECK_INTERVAL, StoredTokens
from sentinel.drivers.identity.token_editing import add_token, revoke_tokens
from sentinel.drivers.identity.tokens_file import TokensFile
from sentinel.ports.identity import Identities
from sentinel.ports.identity_store import IssuedToken
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.testing.clock import START, ManualClock
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.identity_store import IdentityTables, MemoryIdentityStore
from tests.contract.identities import IdentitiesContract, IdentitiesHarness


class FileHarness(IdentitiesHarness):
    """Gives each change of the file another modification time, and lets a second pass after it."""

    def __init__(self, path: Path, content: bytes, driver: Callable[..., Identities]) -> None:
        self.path = path
        path.write_bytes(content)
        self._seconds = 0
        self._identities = driver(path, monotonic=self.monotonic)

    @property
    def identities(self) -> Identities:
        return self._identities

    def monotonic(self) -> float:
        return self._seconds

    def pass_a_second(self) -> None:
        self._seconds += 1
        os.utime(self.path, (self._seconds, self._seconds))


class TokensFileHarness(FileHarness):
    def __init__(self, path: Path) -> None:
        super().__init__(path, b"tokens: []\n", TokensFile)

    def issue(self, identity: Identity) -> str:
        token = add_token(
            self.path,
            name=identity.name,
            role=identity.role,
            adapter=identity.adapter,
            instance=identity.instance,
        )
        self.pass_a_second()
        return token

    def withdraw_all(self) -> None:
        revoke_tokens(self.path, matches=lambda token: True)
        self.pass_a_second()


class JwtHarness(FileHarness):
    def __init__(self, path: Path) -> None:
        self._secret = secrets.token_bytes(32).hex()
        super().__init__(path, self._secret.encode(), JwtKey)

    def issue(self, identity: Identity) -> str:
        claims = {"sub": identity.name, "role": identity.role.value, "exp": int(time.time()) + 3600}
        if identity.adapter:
            claims["adapter"] = identity.adapter
        if identity.instance:
            claims["instance"] = identity.instance
        return jwt.encode(claims, self._secret, algorithm="HS256")

    def withdraw_all(self) -> None:
        self._secret = secrets.token_bytes(32).hex()
        self.path.write_text(self._secret)
        self.pass_a_second()


class StoredHarness(IdentitiesHarness):
    """Changes the tables without a transaction, like another server: they are seen after the next check."""

    def __init__(self) -> None:
        database = MemoryDatabase()
        asyncio.run(database.open())
        self._tables = database.tables(IdentityTables)
        self._seconds = 0.0
        store = MemoryIdentityStore(database)
        self._identities = StoredTokens(store, clock=ManualClock(), monotonic=lambda: self._seconds)

    @property
    def identities(self) -> Identities:
        return self._identities

    def issue(self, identity: Identity) -> str:
        text = new_token()
        number = f"{len(self._tables.tokens):04}"
        self._tables.tokens[number] = IssuedToken(
            id=number,
            name=identity.name,
            role=identity.role,
            adapter=identity.adapter,
            instance=identity.instance,
            digest=digest_of(text),
            created_time=START,
            created_by="root",
        )
        return text

    def withdraw_all(self) -> None:
        self._tables.tokens.clear()
        self._tables.revision["number"] += 1
        self._seconds += CHECK_INTERVAL.total_seconds()


class TestTokensFile(IdentitiesContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> TokensFileHarness:
        return TokensFileHarness(tmp_path / "tokens.yaml")


class TestJwtKey(IdentitiesContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> JwtHarness:
        return JwtHarness(tmp_path / "jwt.key")


class TestStoredTokens(IdentitiesContract):
    @pytest.fixture
    def harness(self) -> StoredHarness:
        return StoredHarness()

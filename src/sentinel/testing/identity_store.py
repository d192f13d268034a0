"""A store of identities in memory.

It passes the same contract suite as SQLite and PostgreSQL. It is stricter in one way: a change without `lock` is
an error, where a database would sometimes let two changes pass each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from sentinel.core.access import Identity, Role
from sentinel.ports.identity_store import (
    Failures,
    IdentityTransaction,
    IssuedToken,
    SignIn,
    TokenOwner,
    User,
    UserTaken,
)
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.transaction import MemoryTransaction, transact

T = TypeVar("T")


class IdentityTables:
    """Users by name, tokens by id, sign-ins by the hash of their token, failed ones by key."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.tokens: dict[str, IssuedToken] = {}
        self.sign_ins: dict[bytes, SignIn] = {}
        self.failed_sign_ins: dict[bytes, Sequence[datetime]] = {}
        self.revision: dict[str, int] = {"number": 0}

    def failures(self, keys: Iterable[bytes]) -> Failures:
        return {key: self.failed_sign_ins[key] for key in keys if key in self.failed_sign_ins}

    def owner(self, digest: bytes) -> TokenOwner | None:
        for token in self.tokens.values():
            if token.digest == digest:
                return TokenOwner(token.identity, token.expires_time)
        sign_in = self.sign_ins.get(digest)
        user = None if sign_in is None else self.users.get(sign_in.user)
        if sign_in is None or user is None:
            return None
        return TokenOwner(Identity(user.name, user.role), sign_in.expires_time)


class MemoryIdentityStore:
    """A verified fake of `ports.identity_store.IdentityStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._tables = database.tables(IdentityTables)

    async def transact(self, work: Callable[[IdentityTransaction], T]) -> T:
        return await transact(self._database, lambda: _Transaction(self._database), work)

    async def revision(self) -> int:
        return await self._database.call("revision", lambda: self._tables.revision["number"])

    async def owner(self, digest: bytes) -> TokenOwner | None:
        return await self._database.call("owner", lambda: self._tables.owner(digest))

    async def has_credentials(self) -> bool:
        return await self._database.call(
            "has_credentials", lambda: bool(self._tables.users or self._tables.tokens)
        )

    async def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        return await self._database.call("failed_sign_ins", lambda: self._tables.failures(keys))

    async def user(self, name: str) -> User | None:
        return await self._database.call("user", lambda: self._tables.users.get(name))

    async def users(self, *, after: str, limit: int) -> Sequence[User]:
        def read() -> list[User]:
            return [each for name, each in sorted(self._tables.users.items()) if name > after][:limit]

        return await self._database.call("users", read)

    async def count_users(self) -> int:
        return await self._database.call("count_users", lambda: len(self._tables.users))

    async def token(self, token_id: str) -> IssuedToken | None:
        return await self._database.call("token", lambda: self._tables.tokens.get(token_id))

    async def tokens(self, *, after: str, limit: int) -> Sequence[IssuedToken]:
        def read() -> list[IssuedToken]:
            return [each for key, each in sorted(self._tables.tokens.items()) if key > after][:limit]

        return await self._database.call("tokens", read)

    async def count_tokens(self) -> int:
        return await self._database.call("count_tokens", lambda: len(self._tables.tokens))

    async def expire_sign_ins(self, before: datetime, *, limit: int) -> int:
        def delete() -> int:
            sign_ins = sorted(self._tables.sign_ins.values(), key=lambda each: each.expires_time)
            ended = [each for each in sign_ins if each.expires_time < before][:limit]
            for each in ended:
                del self._tables.sign_ins[each.digest]
            return len(ended)

        return await self._database.call("expire_sign_ins", delete)

    async def expire_failed_sign_ins(self, before: datetime, *, limit: int) -> int:
        def delete() -> int:
            failures = sorted(self._tables.failed_sign_ins.items(), key=lambda each: each[1][-1])
            old = [key for key, times in failures if times[-1] < before][:limit]
            for key in old:
                del self._tables.failed_sign_ins[key]
            return len(old)

        return await self._database.call("expire_failed_sign_ins", delete)


class _Transaction(MemoryTransaction):
    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._tables = database.tables(IdentityTables)
        self._is_locked = False
        self._locked_keys: set[bytes] = set()

    def lock(self) -> None:
        self._require_open()
        self._is_locked = True
        self._assign(self._tables.revision, "number", self._tables.revision["number"] + 1)

    def user(self, name: str) -> User | None:
        self._require_open()
        return self._tables.users.get(name)

    def count_users(self, role: Role) -> int:
        self._require_open()
        return sum(user.role is role for user in self._tables.users.values())

    def add_user(self, user: User) -> None:
        self._require_open()
        if user.name in self._tables.users:
            raise self._abort(UserTaken(f"the user {user.name} exists"))
        self._assign(self._tables.users, user.name, user)

    def replace_user(self, user: User) -> None:
        self._require_locked()
        self._assign(self._tables.users, user.name, user)

    def remove_user(self, name: str) -> None:
        self._require_locked()
        self._assign(self._tables.users, name, None)

    def token(self, token_id: str) -> IssuedToken | None:
        self._require_open()
        return self._tables.tokens.get(token_id)

    def add_token(self, token: IssuedToken) -> None:
        self._require_open()
        self._assign(self._tables.tokens, token.id, token)

    def remove_token(self, token_id: str) -> None:
        self._require_locked()
        self._assign(self._tables.tokens, token_id, None)

    def add_sign_in(self, sign_in: SignIn) -> None:
        self._require_open()
        self._assign(self._tables.sign_ins, sign_in.digest, sign_in)

    def end_sign_in(self, digest: bytes) -> bool:
        self._require_locked()
        is_known = digest in self._tables.sign_ins
        self._assign(self._tables.sign_ins, digest, None)
        return is_known

    def end_sign_ins(self, user: str) -> int:
        self._require_locked()
        digests = [each.digest for each in self._tables.sign_ins.values() if each.user == user]
        for digest in digests:
            self._assign(self._tables.sign_ins, digest, None)
        return len(digests)

    def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        self._require_open()
        return self._tables.failures(keys)

    def lock_failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        self._require_open()
        wanted = list(keys)
        self._locked_keys.update(wanted)
        return {key: self._tables.failed_sign_ins.get(key, ()) for key in wanted}

    def replace_failed_sign_ins(self, key: bytes, times: Sequence[datetime]) -> None:
        self._require_open()
        if key not in self._locked_keys:
            raise RuntimeError("a change of failed sign-ins needs lock_failed_sign_ins() first")
        self._assign(self._tables.failed_sign_ins, key, tuple(times))

    def _require_locked(self) -> None:
        self._require_open()
        if not self._is_locked:
            raise RuntimeError("a change of identities needs lock() first")

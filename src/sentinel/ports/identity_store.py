"""The store of identities: users, tokens, sign-ins and failed ones, shared by all servers on one database.

A token and the token of a sign-in are stored as their SHA-256, a password as a slow hash. The implementations are
SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from sentinel.core.access import Identity, Role
from sentinel.ports.audit import AuditWriter
from sentinel.ports.database import AlreadyExists

T = TypeVar("T")
Failures: TypeAlias = Mapping[bytes, Sequence[datetime]]
"""The times of failed sign-ins by key, oldest first. A key is the hash of a name or address."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person who signs in with a password."""

    name: str
    role: Role
    password_hash: str
    created_time: datetime
    created_by: str
    updated_time: datetime

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.role.value!r})"


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was handed out. Only its hash is stored."""

    id: str
    """A UUIDv7, so that ids sort by time."""
    name: str
    """Several tokens may have the same name."""
    role: Role
    adapter: str = ""
    instance: str = ""
    digest: bytes
    """The SHA-256 of the token."""
    created_time: datetime
    created_by: str
    expires_time: datetime | None = None

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.role, self.adapter, self.instance)


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A user's sign-in. Its token stands for the user until it ends."""

    digest: bytes
    """The SHA-256 of its token."""
    user: str
    created_time: datetime
    expires_time: datetime


class TokenOwner(msgspec.Struct, frozen=True):
    """Whom a token stands for, and until when."""

    identity: Identity
    expires_time: datetime | None


class UserTaken(AlreadyExists):
    """Another user has this name."""


class IdentityTransaction(AuditWriter, Protocol):
    """A transaction on identities: all of its writes take effect, or none.

    The work is a plain function, which a store may run on any thread, and again after a lost race.
    """

    def lock(self) -> None:
        """Wait for other transactions that have locked, and lock until this one ends.

        Also raises the revision, so that every server looks up again what it remembers of tokens. Required before
        `replace_user`, `remove_user`, `remove_token`, `end_sign_in` and `end_sign_ins`.
        """

    def user(self, name: str) -> User | None:
        """Return a user, which no other transaction can change until this one ends."""

    def count_users(self, role: Role) -> int: ...

    def add_user(self, user: User) -> None:
        """Raises `UserTaken`, which ends the transaction."""

    def replace_user(self, user: User) -> None: ...

    def remove_user(self, name: str) -> None: ...

    def token(self, token_id: str) -> IssuedToken | None: ...

    def add_token(self, token: IssuedToken) -> None: ...

    def remove_token(self, token_id: str) -> None: ...

    def add_sign_in(self, sign_in: SignIn) -> None:
        """The user must have been read in this transaction."""

    def end_sign_in(self, digest: bytes) -> bool:
        """Return whether there was such a sign-in."""

    def end_sign_ins(self, user: str) -> int:
        """End all sign-ins of a user. Returns how many."""

    def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        """Return the failures of those keys that have any, as other transactions have committed them."""

    def lock_failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        """Return the failures of all keys, which no other transaction can change until this one ends."""

    def replace_failed_sign_ins(self, key: bytes, times: Sequence[datetime]) -> None:
        """Set the failures of a key that is locked: one or more, oldest first."""


class IdentityStore(Protocol):
    """Users, tokens and sign-ins. Every call may raise `Unavailable`."""

    async def transact(self, work: Callable[[IdentityTransaction], T]) -> T:
        """Run the work in a transaction, and return its result once that is durable."""

    async def revision(self) -> int:
        """Return a number that changes whenever a user, token or sign-in is changed or removed.

        An addition does not change it: nobody can have asked for a token before it was made.
        """

    async def owner(self, digest: bytes) -> TokenOwner | None:
        """Return whom the token with this hash stands for, whether or not it has expired."""

    async def has_credentials(self) -> bool:
        """Return whether there is any user or token."""

    async def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        """Return the failures of those keys that have any."""

    async def user(self, name: str) -> User | None: ...

    async def users(self, *, after: str, limit: int) -> Sequence[User]:
        """Return users in the order of their names, beginning after a name."""

    async def count_users(self) -> int: ...

    async def token(self, token_id: str) -> IssuedToken | None: ...

    async def tokens(self, *, after: str, limit: int) -> Sequence[IssuedToken]:
        """Return tokens in the order of their ids, beginning after an id."""

    async def count_tokens(self) -> int: ...

    async def expire_sign_ins(self, before: datetime, *, limit: int) -> int:
        """Delete sign-ins that ended before this time, at most `limit`. Returns how many."""

    async def expire_failed_sign_ins(self, before: datetime, *, limit: int) -> int:
        """Delete failures of keys whose last one was before this time, of at most `limit`. Returns how many."""

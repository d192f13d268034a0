"""The store of secrets: values that configurations name and do not contain.

Values are stored encrypted, each bound to its name. No record here has one: a value goes in by `save_secret`, and
comes out by `values` alone. The implementations are SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass
one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import HubTransaction

T = TypeVar("T")


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    name: str
    updated_time: datetime
    offered_to: str | None = None
    """While its users are told to fetch it again: the last instance that was told, empty at first. None: done."""


class SecretTransaction(HubTransaction, Protocol):
    """A transaction that can also change secrets. They are locked after instances and configurations."""

    def secret(self, name: str) -> SecretRecord | None:
        """Return a secret and lock it until the transaction ends."""

    def save_secret(self, secret: SecretRecord, value: bytes) -> None:
        """Store a secret that was read, or is new, in this transaction. Needs a key."""

    def note_offered(self, name: str, offered_to: str | None) -> None:
        """Store how far its users were told, of a secret that was read in this transaction."""

    def remove_secret(self, name: str) -> None:
        """Delete a secret that was read in this transaction."""


class SecretStore(Protocol):
    """Secrets, and who needs them. Every call but `has_key` may raise `Unavailable`."""

    @property
    def has_key(self) -> bool:
        """Whether there is a key, without which no secret can be stored."""

    async def load(self) -> int:
        """Check that every stored value has its key, and encrypt those again that have an old one.

        Returns how many that were. Raises `Misconfigured` if a key is missing.
        """

    async def transact(self, work: Callable[[SecretTransaction], T]) -> T:
        """As `HubStore.transact`."""

    async def secrets(self, *, after: str, limit: int) -> Sequence[SecretRecord]:
        """Return secrets in the order of their names."""

    async def count_secrets(self) -> int: ...

    async def secrets_by_name(self, names: Collection[str]) -> Mapping[str, SecretRecord]:
        """Return those of these secrets that exist."""

    async def values(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return the values of those of these secrets that exist. Raises `Misconfigured` if one cannot be read."""

    async def used_by(self, names: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        """Return the versions that name each secret and may be needed: the latest of a configuration, and those
        whose text is assigned to an instance. Secrets without any are left out."""

    async def users(self, name: str, *, after: str, limit: int) -> Sequence[str]:
        """Return ids of instances, removed ones excluded, whose assigned version names a secret, in order."""

    async def unfinished_offers(self, *, limit: int) -> Sequence[SecretRecord]:
        """Return secrets whose users were not all told that they have changed."""

"""Use cases of secrets: values that configurations name, which only the agents that need them get.

A value goes in and is never shown again: neither to users nor in the audit, an event or a log. Without a key, none
can be stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sentinel.core.hub import secret_names
from sentinel.core.hub.versions import VersionName
from sentinel.ports.clock import Clock
from sentinel.ports.secret_store import SecretRecord, SecretStore, SecretTransaction
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, Invalid, NotFound
from sentinel.web.problem import FieldError, shown
from sentinel.web.routing import Caller

KIND: Final = "secret"
"""The kind of secrets in the audit."""
MAX_VALUE_LENGTH: Final = 64 * 1024
"""A chain of certificates needs about a tenth of it."""
NO_KEY: Final = "the hub has no key to encrypt secrets with; give --secrets-key-file or SENTINEL_SECRETS_KEY"


class UsedSecret(msgspec.Struct, frozen=True):
    """A secret, and the versions that name it."""

    secret: SecretRecord
    used_by: Sequence[VersionName]


class Secrets:
    """Stores and deletes secrets, and says which exist. Every call may raise `Unavailable`."""

    def __init__(self, *, store: SecretStore, clock: Clock, auditor: Auditor) -> None:
        self._store = store
        self._clock = clock
        self._auditor = auditor

    async def find(self, *, after: str, limit: int) -> tuple[Sequence[UsedSecret], int]:
        """Return secrets in the order of their names, and how many there are."""
        found = await self._store.secrets(after=after, limit=limit)
        used = await self._store.used_by([each.name for each in found])
        return [UsedSecret(each, used.get(each.name, ())) for each in found], await self._store.count_secrets()

    async def get(self, name: str) -> UsedSecret:
        """Raises `NotFound`."""
        found = (await self._store.secrets_by_name([name])).get(name)
        if found is None:
            raise _no_secret(name)
        return UsedSecret(found, (await self._store.used_by([name])).get(name, ()))

    async def put(self, caller: Caller, name: str, value: str) -> None:
        """Store a secret in the place of an earlier value. Raises `Invalid`, `Conflict`."""
        errors = tuple(_errors(name, value))
        if errors:
            raise Invalid(errors)
        if not self._store.has_key:
            raise Conflict(NO_KEY)
        now = self._clock.now()
        created, updated = (
            self._auditor.entry(caller, action=action, kind=KIND, resource_id=name, now=now)
            for action in ("create", "update")
        )
        data = value.encode()

        def work(transaction: SecretTransaction) -> None:
            is_new = transaction.secret(name) is None
            # The instances that use it are told one after the other, from the first on.
            transaction.save_secret(SecretRecord(name=name, updated_time=now, offered_to=""), data)
            transaction.record(created if is_new else updated)

        await self._store.transact(work)

    async def remove(self, caller: Caller, name: str) -> None:
        """Delete a secret, also while it is used: those who have it keep it. Raises `NotFound`."""
        entry = self._auditor.entry(caller, action="delete", kind=KIND, resource_id=name, now=self._clock.now())

        def work(transaction: SecretTransaction) -> None:
            if transaction.secret(name) is None:
                raise _no_secret(name)
            transaction.remove_secret(name)
            transaction.record(entry)

        await self._store.transact(work)

    async def missing(self, references: Sequence[str]) -> Sequence[str]:
        """Return the names of the hub's secrets among references that do not exist, in order."""
        names = secret_names.names(references)
        known = await self._store.secrets_by_name(names) if names else {}
        return [name for name in names if name not in known]

    async def for_instance(self, needed: Sequence[str], assigned: Sequence[str]) -> Mapping[str, bytes]:
        """Return the values of the secrets that both a version and the assigned version name.

        `needed` and `assigned` are their references. Raises `Misconfigured` if a value cannot be decrypted.
        """
        allowed = frozenset(secret_names.names(assigned))
        names = [name for name in secret_names.names(needed) if name in allowed]
        return await self._store.values(names) if names else {}

    async def contents(self, references: Collection[str]) -> Mapping[str, bytes]:
        """Return the values of secrets by reference, for a check that does not quote them."""
        names = secret_names.names(references)
        values = await self._store.values(names) if names else {}
        return {f"{secret_names.PREFIX}{name}": value for name, value in values.items()}


def _errors(name: str, value: str) -> Iterator[FieldError]:
    if not secret_names.is_secret_name(name):
        yield FieldError("name", f"expected {secret_names.NAME_EXPECTED}")
    if not 0 < len(value) <= MAX_VALUE_LENGTH:
        yield FieldError("value", f"expected 1 to {MAX_VALUE_LENGTH} characters, got {len(value)}")


def _no_secret(name: str) -> NotFound:
    return NotFound(f"there is no secret {shown(name)}")

"""A store of secrets in memory.

It passes the same contract suite as SQLite and PostgreSQL. It keeps values as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from sentinel.core.hub import secret_names
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.ports.errors import Misconfigured
from sentinel.ports.hub_store import ConfigVersion, InstanceRecord
from sentinel.ports.secret_store import SecretRecord, SecretTransaction
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.hub_store import MemoryHubTransaction
from sentinel.testing.hub_tables import HubTables
from sentinel.testing.transaction import transact

T = TypeVar("T")


class SecretTables:
    """Secrets and their values, by name."""

    def __init__(self) -> None:
        self.records: dict[str, SecretRecord] = {}
        self.values: dict[str, bytes] = {}


class MemorySecretStore:
    """A verified fake of `ports.secret_store.SecretStore`."""

    def __init__(self, database: MemoryDatabase, *, has_key: bool = True) -> None:
        self._database = database
        self._hub = database.tables(HubTables)
        self._tables = database.tables(SecretTables)
        self.has_key = has_key
        self.lost: set[str] = set()
        """Names of secrets whose key is no longer there."""

    async def load(self) -> int:
        return await self._database.call("load_secrets", lambda: 0)

    async def transact(self, work: Callable[[SecretTransaction], T]) -> T:
        return await transact(self._database, lambda: _Transaction(self._database, has_key=self.has_key), work)

    async def secrets(self, *, after: str, limit: int) -> Sequence[SecretRecord]:
        def read() -> list[SecretRecord]:
            return [each for name, each in sorted(self._tables.records.items()) if name > after][:limit]

        return await self._database.call("secrets", read)

    async def count_secrets(self) -> int:
        return await self._database.call("count_secrets", lambda: len(self._tables.records))

    async def secrets_by_name(self, names: Collection[str]) -> Mapping[str, SecretRecord]:
        return await self._database.call("secrets_by_name", lambda: _chosen(self._tables.records, names))

    async def values(self, names: Collection[str]) -> Mapping[str, bytes]:
        found = await self._database.call("values", lambda: _chosen(self._tables.values, names))
        for name in found:
            if name in self.lost:
                raise Misconfigured(f"the secret {name} in the database is encrypted with a key that is not there")
        return found

    async def used_by(self, names: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        def read() -> dict[str, Sequence[VersionName]]:
            found = {name: [each for each in self._needed() if name in self._named(each)] for name in names}
            return {name: versions for name, versions in found.items() if versions}

        return await self._database.call("used_by", read)

    async def users(self, name: str, *, after: str, limit: int) -> Sequence[str]:
        def read() -> list[str]:
            named = [each for each in self._hub.versions if name in self._named(each)]
            texts = {(each.config_id, self._hub.versions[each].hash) for each in named}
            return [each.id for each in self._present() if each.id > after and _assigned(each) in texts][:limit]

        return await self._database.call("users", read)

    async def unfinished_offers(self, *, limit: int) -> Sequence[SecretRecord]:
        def read() -> list[SecretRecord]:
            found = [each for _, each in sorted(self._tables.records.items()) if each.offered_to is not None]
            return found[:limit]

        return await self._database.call("unfinished_offers", read)

    def _needed(self) -> list[VersionName]:
        """The versions that are the latest, or whose text is assigned to an instance."""
        assigned = {_assigned(each) for each in self._present()}
        latest = {VersionName(each.id, each.latest_version) for each in self._hub.configs.values()}

        def is_needed(name: VersionName, version: ConfigVersion) -> bool:
            return name in latest or (name.config_id, version.hash) in assigned

        return sorted(name for name, version in self._hub.versions.items() if is_needed(name, version))

    def _named(self, version: VersionName) -> Sequence[str]:
        return secret_names.names(self._hub.versions[version].secrets)

    def _present(self) -> list[InstanceRecord]:
        found = sorted(self._hub.instances.items())
        return [each for _, each in found if each.life.state is not State.REMOVED]


class _Transaction(MemoryHubTransaction):
    def __init__(self, database: MemoryDatabase, *, has_key: bool) -> None:
        super().__init__(database)
        self._secrets = database.tables(SecretTables)
        self._has_key = has_key

    def secret(self, name: str) -> SecretRecord | None:
        self._require_open()
        self._locked.add(("secret", name))
        return self._secrets.records.get(name)

    def save_secret(self, secret: SecretRecord, value: bytes) -> None:
        self._require_locked("secret", secret.name)
        if not self._has_key:
            raise RuntimeError("a secret cannot be stored without a key")
        self._assign(self._secrets.records, secret.name, secret)
        self._assign(self._secrets.values, secret.name, value)

    def note_offered(self, name: str, offered_to: str | None) -> None:
        self._require_locked("secret", name)
        found = self._secrets.records.get(name)
        if found is not None:
            noted = SecretRecord(name=name, updated_time=found.updated_time, offered_to=offered_to)
            self._assign(self._secrets.records, name, noted)

    def remove_secret(self, name: str) -> None:
        self._require_locked("secret", name)
        self._assign(self._secrets.records, name, None)
        self._assign(self._secrets.values, name, None)


def _chosen(table: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: table[name] for name in names if name in table}


def _assigned(instance: InstanceRecord) -> tuple[str, str] | None:
    assignment = instance.sync.assignment
    return None if assignment is None else (assignment.version.config_id, assignment.hash)

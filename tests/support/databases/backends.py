"""A database with its stores, in memory or in SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from sentinel.drivers.encryption import Encryption
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.fleet.change_log import SqlChangeLog
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.hub.secrets import SqlSecretStore
from sentinel.drivers.sql.hub.signing_keys import SqlSigningKeys
from sentinel.drivers.sql.hub.store import SqlHubStore
from sentinel.drivers.sql.hub.webhooks import SqlWebhookStore
from sentinel.drivers.sql.idempotency import SqlIdempotencyStore
from sentinel.drivers.sql.identity.store import SqlIdentityStore
from sentinel.drivers.sql.transaction import SqlTransaction
from sentinel.drivers.sql.transaction import transact as sql_transact
from sentinel.ports.audit import AuditLog, AuditWriter
from sentinel.ports.change_log import ChangeLog
from sentinel.ports.database import Database
from sentinel.ports.fleet_store import FleetStore
from sentinel.ports.hub_store import HubStore
from sentinel.ports.idempotency import IdempotencyStore, StoredResponses
from sentinel.ports.identity_store import IdentityStore
from sentinel.ports.secret_store import SecretStore
from sentinel.ports.signing_keys import SigningKeys
from sentinel.ports.webhook_store import WebhookStore
from sentinel.testing.audit import MemoryAuditLog
from sentinel.testing.change_log import MemoryChangeLog
from sentinel.testing.database import Faults, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.hub_store import MemoryHubStore
from sentinel.testing.idempotency import MemoryIdempotencyStore
from sentinel.testing.identity_store import MemoryIdentityStore
from sentinel.testing.secret_store import MemorySecretStore
from sentinel.testing.signing_keys import MemorySigningKeys
from sentinel.testing.transaction import MemoryTransaction
from sentinel.testing.transaction import transact as memory_transact
from sentinel.testing.webhook_store import MemoryWebhookStore

T = TypeVar("T")

ENCRYPTION = Encryption([bytes(range(32))], source="secrets.key")


class SharedTransaction(AuditWriter, StoredResponses, Protocol):
    """The methods that the transactions of all components share."""


class Backend(ABC):
    """A database and the stores of a server."""

    database: Database
    fleet: FleetStore
    changes: ChangeLog
    audit: AuditLog
    idempotency: IdempotencyStore
    identities: IdentityStore
    hub: HubStore
    signing_keys: SigningKeys
    secrets: SecretStore
    webhooks: WebhookStore

    @abstractmethod
    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        """Run the work in a transaction without a component's own methods."""


class MemoryBackend(Backend):
    def __init__(self, database: MemoryDatabase, fleet: MemoryFleetStore) -> None:
        self.database = self.memory = database
        self.fleet = fleet
        self.changes = MemoryChangeLog(database)
        self.audit = MemoryAuditLog(database)
        self.idempotency = MemoryIdempotencyStore(database)
        self.identities = MemoryIdentityStore(database)
        self.hub = MemoryHubStore(database)
        self.signing_keys = MemorySigningKeys(database)
        self.secrets = MemorySecretStore(database)
        self.webhooks = MemoryWebhookStore(database)

    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        return await memory_transact(self.memory, lambda: MemoryTransaction(self.memory), work)


class SqlBackend(Backend):
    def __init__(self, database: SqlDatabase) -> None:
        self._database = self.database = database
        self.fleet = SqlFleetStore(database)
        self.changes = SqlChangeLog(database)
        self.audit = SqlAuditLog(database)
        self.idempotency = SqlIdempotencyStore(database)
        self.identities = SqlIdentityStore(database)
        self.hub = SqlHubStore(database)
        self.signing_keys = SqlSigningKeys(database, encryption=None)
        self.secrets = SqlSecretStore(database, encryption=ENCRYPTION)
        self.webhooks = SqlWebhookStore(database)

    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        return await sql_transact(self._database, SqlTransaction, work)


def memory(
    *, faults: Faults | None = None, fleet: Callable[[MemoryDatabase], MemoryFleetStore] = MemoryFleetStore
) -> MemoryBackend:
    """A backend in memory, not yet open. `fleet` may build a faulty store."""
    database = MemoryDatabase(faults=faults)
    return MemoryBackend(database, fleet(database))


def sql(url: str) -> SqlBackend:
    """A backend in SQLite or PostgreSQL, not yet open."""
    return SqlBackend(engine.database(url, migrate=True, history=HISTORY))


class SqlFleet(SqlFleetStore):
    """A fleet store with its database, for tests of the database through the store."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self.open = database.open
        self.close = database.close
        self.unavailable_reason = database.unavailable_reason
        self.audit = SqlAuditLog(database)

    @classmethod
    def at(cls, url: str, *, connections: int = 10) -> SqlFleet:
        return cls(engine.database(url, migrate=True, connections=connections, history=HISTORY))

    async def __aenter__(self) -> SqlFleet:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

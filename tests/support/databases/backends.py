"""A database together with the stores on it, in memory or in SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from sentinel.drivers.sql import engine
from sentinel.drivers.sql import transaction as sql_transaction
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.idempotency import SqlIdempotencyStore
from sentinel.drivers.sql.transaction import SqlTransaction
from sentinel.ports.audit import AuditLog, AuditWriter
from sentinel.ports.database import Database
from sentinel.ports.fleet_store import FleetStore
from sentinel.ports.idempotency import IdempotencyStore, StoredResponses
from sentinel.testing import transaction as memory_transaction
from sentinel.testing.audit import MemoryAuditLog
from sentinel.testing.database import Faults, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.idempotency import MemoryIdempotencyStore
from sentinel.testing.transaction import MemoryTransaction

T = TypeVar("T")


class SharedTransaction(AuditWriter, StoredResponses, Protocol):
    """What the transactions of all components have in common."""


class Backend(ABC):
    """What a server stands on."""

    database: Database
    fleet: FleetStore
    audit: AuditLog
    idempotency: IdempotencyStore

    @abstractmethod
    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        """Runs the work in a transaction of no component in particular."""


class MemoryBackend(Backend):
    """In memory."""

    def __init__(self, database: MemoryDatabase, fleet: MemoryFleetStore) -> None:
        self._database = self.database = database
        self.fleet = fleet
        self.audit = MemoryAuditLog(database)
        self.idempotency = MemoryIdempotencyStore(database)

    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        return await memory_transaction.transact(self._database, lambda: MemoryTransaction(self._database), work)


class SqlBackend(Backend):
    """In SQLite or PostgreSQL."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = self.database = database
        self.fleet = SqlFleetStore(database)
        self.audit = SqlAuditLog(database)
        self.idempotency = SqlIdempotencyStore(database)

    async def transact(self, work: Callable[[SharedTransaction], T]) -> T:
        return await sql_transaction.transact(self._database, SqlTransaction, work)


def memory(
    *, faults: Faults | None = None, fleet: Callable[[MemoryDatabase], MemoryFleetStore] = MemoryFleetStore
) -> MemoryBackend:
    """In memory; `fleet` makes a store that misbehaves."""
    database = MemoryDatabase(faults=faults)
    return MemoryBackend(database, fleet(database))


def sql(url: str) -> SqlBackend:
    """In SQLite or PostgreSQL, not yet open."""
    return SqlBackend(engine.database(url, migrate=True, history=HISTORY))


class SqlFleet(SqlFleetStore):
    """A fleet store and its database in one, for tests of the database through what is kept in it."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self.open = database.open
        self.close = database.close
        self.trouble = database.trouble
        self.audit = SqlAuditLog(database)

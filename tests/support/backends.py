"""A database together with the stores on it, in memory or in SQL."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.ports.database import Database
from sentinel.ports.fleet_store import FleetStore
from sentinel.testing.database import Faults, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What a server stands on."""

    database: Database
    fleet: FleetStore


def memory(
    *, faults: Faults | None = None, fleet: Callable[[MemoryDatabase], MemoryFleetStore] = MemoryFleetStore
) -> Backend:
    """In memory; `fleet` makes a store that misbehaves."""
    database = MemoryDatabase(faults=faults)
    return Backend(database=database, fleet=fleet(database))


def sql(url: str) -> Backend:
    """In SQLite or PostgreSQL, not yet open."""
    return on(engine.database(url, migrate=True))


def on(database: SqlDatabase) -> Backend:
    """On this database, whether it is open or not."""
    return Backend(database=database, fleet=SqlFleetStore(database))


class SqlFleet(SqlFleetStore):
    """A fleet store and its database in one, for tests of the database through what is kept in it."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self.open = database.open
        self.close = database.close
        self.trouble = database.trouble

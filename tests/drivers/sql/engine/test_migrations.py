"""Migrations of databases of older versions keep their data."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from sentinel.core import search
from sentinel.core.access import Role
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.schema import History, Migration
from sentinel.drivers.sql.history import HISTORY
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.fleet_store import ListQuery
from sentinel.ports.idempotency import StoredResponse
from tests.support.databases import backends, postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.store_records import MOMENT, SECOND

TIMEOUT = 60.0

Row: TypeAlias = Sequence[str | int | bool | bytes]

GADGET = rb'{"id":"g-1","kind":"Gadget","href":"/g","name":"g","spec":{"nul":"\u0000","kind":"Decoy"}}'


class OldDatabase(ABC):
    """A database of an older version."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    async def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...

    @abstractmethod
    async def tables(self) -> set[str]: ...


class OldSqlite(OldDatabase):
    async def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        marks = ", ".join("?" for _ in columns.split())
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns.split())}) VALUES ({marks})", rows)  # noqa: S608

    async def tables(self) -> set[str]:
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in found}


class OldPostgresql(OldDatabase):
    async def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        marks = ", ".join(f"${number + 1}" for number, _ in enumerate(columns.split()))
        connection = await postgresql.connect(self.url)
        try:
            await connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns.split())}) VALUES ({marks})",  # noqa: S608
                rows,
            )
        finally:
            await connection.close()

    async def tables(self) -> set[str]:
        found = await postgresql.fetch(
            self.url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
        return {name for (name,) in found}


def until(revision: str) -> History:
    """The history of an older version that ends with this revision."""
    return History(HISTORY.revisions[: HISTORY.revisions.index(revision) + 1], HISTORY.folders)


@pytest.fixture(params=list(DatabaseKind))
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> OldDatabase:
    """A database at the first revision."""
    url = empty_database(request.param, request, tmp_path)
    await engine.migrate(url, history=until("0001"))
    return OldSqlite(url) if url.startswith("sqlite") else OldPostgresql(url)


# --- 0002: one audit and one table of idempotency keys for all components ----------------------------------------

RESOURCE = """
    id plural name parent root created_time updated_time version is_ready adapters labels waiting document statuses
"""
AUDIT = "id time actor role address action plural resource_id generation detail request_id"


def old_resource(resource_id: str, plural: str, document: bytes, *, created: int = 0) -> Row:
    names = (resource_id, plural, resource_id, "", resource_id)
    return (*names, created, 0, 1, False, "", b"{}", b"{}", document, b"[]")


def old_entry(number: int, action: str, plural: str, generation: int = 1, detail: str = "") -> Row:
    time = to_micros(MOMENT + number * SECOND)
    actor = ("ops", "operator", "::1")
    return (f"0195-{number:08}", time, *actor, action, plural, f"{plural}-1", generation, detail, f"r{number}")


def new_entry(number: int, action: str, kind: str, resource_id: str, detail: str) -> AuditEntry:
    return AuditEntry(
        id=f"0195-{number:08}",
        time=MOMENT + number * SECOND,
        actor="ops",
        role=Role.OPERATOR,
        address="::1",
        action=action,
        kind=kind,
        resource_id=resource_id,
        request_id=f"r{number}",
        detail=detail,
    )


async def test_old_audit_entries_name_the_kind_and_keep_the_generation(database: OldDatabase) -> None:
    await database.insert(
        "fleet_resources",
        RESOURCE,
        [
            old_resource("c-1", "clusters", b'{"id":"c-1","kind":"OldCluster","name":"c"}', created=1),
            old_resource("c-2", "clusters", b'{"id":"c-2","kind":"Cluster","name":"d"}', created=2),
            old_resource("g-1", "gadgets", GADGET),
        ],
    )
    await database.insert(
        "fleet_audit",
        AUDIT,
        [
            old_entry(1, "create", "clusters"),
            old_entry(2, "patch", "nodepools", 2),
            old_entry(3, "delete", "manifests", 12345678901),
            old_entry(4, "remove", "workloads", 3),
            old_entry(5, "report", "gadgets", 4, "dns"),
            old_entry(6, "force-delete", "widgets", 5, "it's stuck"),
            old_entry(7, "pause", "clusters", 6),
            old_entry(8, "create", "gadgets", 0),
        ],
    )

    done = await engine.migrate(database.url, history=HISTORY)

    assert done == Migration("0001", HISTORY.head)
    backend = backends.sql(database.url)
    await backend.database.open()
    found = await backend.audit.find(AuditQuery(limit=99))
    await backend.database.close()
    assert list(reversed(found)) == [
        new_entry(1, "create", "Cluster", "clusters-1", "generation 1"),
        new_entry(2, "patch", "NodePool", "nodepools-1", "generation 2"),
        new_entry(3, "delete", "Manifest", "manifests-1", "generation 12345678901"),
        new_entry(4, "remove", "Workload", "workloads-1", "generation 3"),
        new_entry(5, "report", "Gadget", "gadgets-1", "dns"),
        new_entry(6, "force-delete", "widgets", "widgets-1", "it's stuck"),
        new_entry(7, "pause", "Cluster", "clusters-1", ""),
        new_entry(8, "create", "Gadget", "gadgets-1", ""),
    ]
    assert "fleet_audit" not in await database.tables()


async def test_an_old_database_without_entries_is_migrated(database: OldDatabase) -> None:
    assert await engine.migrate(database.url, history=HISTORY) == Migration("0001", HISTORY.head)


async def test_idempotency_keys_of_the_old_version_are_kept(database: OldDatabase) -> None:
    await database.insert(
        "fleet_answers",
        "actor key fingerprint time version body",
        [("ops", "schlüssel", "f1", to_micros(MOMENT), 2**53, b"{}\x00"), ("dns", "k", "f2", 1, 1, b"")],
    )

    await engine.migrate(database.url, history=HISTORY)

    backend = backends.sql(database.url)
    await backend.database.open()
    found = await backend.transact(lambda transaction: transaction.recall("ops", "schlüssel"))
    expired = await backend.idempotency.expire(MOMENT, limit=9)
    await backend.database.close()
    assert found == StoredResponse(
        actor="ops", key="schlüssel", fingerprint="f1", time=MOMENT, version=2**53, body=b"{}\x00"
    )
    assert expired == 1
    assert "fleet_answers" not in await database.tables()


async def test_rows_that_an_older_server_writes_meanwhile_are_moved(fresh_postgresql_database: str) -> None:
    url = fresh_postgresql_database
    await engine.migrate(url, history=until("0001"))
    older_server = await postgresql.connect(url)
    await older_server.execute("BEGIN")
    await older_server.execute(
        "INSERT INTO fleet_audit VALUES "
        "('0195-1', 0, 'ops', 'operator', '', 'create', 'clusters', 'c', 1, '', 'r1')"
    )

    async with asyncio.timeout(TIMEOUT):
        migrating = asyncio.create_task(engine.migrate(url, history=HISTORY))
        await postgresql.wait_for_blocked(url)
        await older_server.execute("COMMIT")
        await migrating

    await older_server.close()
    assert await postgresql.fetch(url, "SELECT id, kind FROM audit_entries") == [("0195-1", "Cluster")]


# --- 0003: attributes of resources, indexed for searches ---------------------------------------------------------

DOCUMENT = (
    b'{"id":"c-2","spec":{"generation":9},"generation":12,'
    b'"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Available","status":"True"}]}}'
)


async def test_resources_of_the_old_version_are_found_by_a_search(database: OldDatabase) -> None:
    await engine.migrate(database.url, history=until("0002"))
    many = [old_resource(f"c-{n:03}", "clusters", DOCUMENT.replace(b"12", b"%d" % n)) for n in range(1, 251)]
    await database.insert("fleet_resources", RESOURCE, many)

    await engine.migrate(database.url, history=HISTORY)

    backend = backends.sql(database.url)
    await backend.database.open()
    found = {
        text: (await backend.fleet.find(ListQuery(plural="clusters", search=search.parse(text), limit=1))).total
        for text in ("generation=12", "generation in (1,249,250)", "status.conditions.Ready='False'")
    }
    migrated = await backend.fleet.get("c-012")
    await backend.database.close()
    assert list(found.values()) == [1, 3, 250]
    assert migrated is not None
    assert migrated.attributes == {
        "generation": "12",
        "status.conditions.Ready": "False",
        "status.conditions.Available": "True",
    }


# --- 0009: which versions name which secrets ---------------------------------------------------------------------


async def test_secrets_that_stored_versions_name_are_found(database: OldDatabase) -> None:
    await engine.migrate(database.url, history=until("0008"))
    details = (
        b'{"hash":"abc","change_summary":"","restart_required":false,"warnings":[],"created_by":"ann",'
        b'"secrets":%s,"created_time":"2026-03-01T12:00:00Z"}'
    )
    named = b'["env:A","secret:api-cert","secret:api-key","secret:api-cert"]'
    versions: list[Row] = [("edge", number, details % b"[]", b"text") for number in range(1, 600)]
    await database.insert(
        "hub_configs", "id created_by latest_version created_time updated_time", [("edge", "ann", 600, 0, 0)]
    )
    await database.insert(
        "hub_config_versions",
        "config_id number details content",
        [*versions, ("edge", 600, details % named, b"text")],
    )

    backend = backends.sql(database.url)
    await backend.database.open()
    used = await backend.secrets.used_by(["api-cert", "api-key", "A"])
    await backend.database.close()

    assert used == {name: [VersionName("edge", 600)] for name in ("api-cert", "api-key")}

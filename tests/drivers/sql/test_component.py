"""A component with its own table and migration on the shared database: it inherits audit and idempotency keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from sqlalchemy import MetaData, PrimaryKeyConstraint, Table, UniqueConstraint, bindparam, insert, select

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.columns import TEXT, required
from sentinel.drivers.sql.engine.statements import SqlDatabase, Statement
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.transaction import SqlTransaction, transact
from sentinel.ports.audit import AuditQuery
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import KeyTaken
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.store_records import entry, inserting, response, stored

T = TypeVar("T")

MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = "toys_1"
down_revision = "{HISTORY.head}"

def upgrade():
    op.create_table(
        "toy_things",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="toy_things_id"),
        sa.UniqueConstraint("name", name="toy_things_name"),
    )
"""

things = Table(
    "toy_things",
    MetaData(),
    *required(TEXT, "id", "name"),
    PrimaryKeyConstraint("id", name="toy_things_id"),
    UniqueConstraint("name", name="toy_things_name"),
)
_INSERT = Statement(insert(things).inline(), "id", "name")
_NAME = Statement(select(things.c.name).where(things.c.id == bindparam("id")))


class NameTaken(AlreadyExists):
    """Another thing has this name."""


class ToyTransaction(SqlTransaction):
    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {"toy_things_name": NameTaken}

    def make(self, thing: str, name: str) -> None:
        self._run(_INSERT, {"id": thing, "name": name})


class ToyStore:
    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def transact(self, work: Callable[[ToyTransaction], T]) -> T:
        return await transact(self._database, ToyTransaction, work)

    async def name_of(self, thing: str) -> str | None:
        found = await self._database.read(lambda session: session.rows(_NAME, id=thing))
        return found[0][0] if found else None


@pytest.fixture(params=list(DatabaseKind))
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlDatabase]:
    (tmp_path / "toys_1.py").write_text(MIGRATION)
    history = HISTORY.followed_by("toys_1", folder=tmp_path)
    database = engine.database(empty_database(request.param, request, tmp_path), migrate=True, history=history)
    await database.open()
    yield database
    await database.close()


def making(thing: str, name: str, number: int) -> Callable[[ToyTransaction], None]:
    def work(toys: ToyTransaction) -> None:
        toys.make(thing, name)
        toys.record(entry(number, resource_id=thing))
        toys.remember(response(f"key-{number}"))

    return work


async def test_a_row_its_entry_and_its_response_are_written_together(database: SqlDatabase) -> None:
    toys, audit = ToyStore(database), SqlAuditLog(database)

    await toys.transact(making("t-1", "robot", 1))
    with pytest.raises(NameTaken):
        await toys.transact(making("t-2", "robot", 2))
    with pytest.raises(KeyTaken):
        await toys.transact(making("t-3", "ball", 1))

    assert [await toys.name_of(each) for each in ("t-1", "t-2", "t-3")] == ["robot", None, None]
    assert list(await audit.find(AuditQuery(limit=9))) == [entry(1, resource_id="t-1")]
    assert await toys.transact(lambda each: each.recall("ops", "key-1")) == response("key-1")
    assert await toys.transact(lambda each: each.recall("ops", "key-2")) is None


async def test_another_component_uses_the_same_database(database: SqlDatabase) -> None:
    toys, fleet = ToyStore(database), SqlFleetStore(database)

    await toys.transact(making("t-1", "robot", 1))
    await fleet.transact(inserting(stored("cls-1")))

    assert await toys.name_of("t-1") == "robot"
    assert await fleet.get("cls-1") == stored("cls-1")

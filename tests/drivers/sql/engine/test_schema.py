"""Migrations create the tables that the code defines, even if several processes migrate at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine import schema
from sentinel.drivers.sql.engine.schema import Migration
from sentinel.drivers.sql.history import HISTORY
from sentinel.ports.errors import Misconfigured
from tests.support.databases import postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.databases.postgresql import TABLES

TIMEOUT = 60.0
HEAD = HISTORY.head
ENVIRONMENT = Path(schema.__file__).parent / "alembic_environment"
EmptyDatabase: TypeAlias = tuple[str, Callable[[str], None]]
NEWER = "UPDATE sentinel_schema SET version_num = '9999'"


def differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
    )
    return list(compare_metadata(context, TABLES))


def test_the_revisions_are_those_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(ENVIRONMENT))
    config.set_main_option("version_locations", os.pathsep.join(map(str, HISTORY.folders)))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)

    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == HISTORY.revisions
    assert scripts.get_heads() == [HEAD]


async def test_migrations_create_the_tables_of_the_code_in_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"

    done = await engine.migrate(f"sqlite:///{file}", history=HISTORY)

    assert done == Migration(None, HEAD)
    with create_engine(f"sqlite:///{file}", poolclass=NullPool).connect() as connection:
        assert differences(connection) == []


async def test_migrations_create_the_tables_of_the_code_in_postgresql(fresh_postgresql_database: str) -> None:
    done = await engine.migrate(fresh_postgresql_database, history=HISTORY)

    assert done == Migration(None, HEAD)
    url = fresh_postgresql_database.replace("postgresql://", "postgresql+asyncpg://")
    async with create_async_engine(url, poolclass=NullPool).connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_one_of_many_concurrent_migrations_migrates_postgresql(fresh_postgresql_database: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        done = await asyncio.gather(
            *(engine.migrate(fresh_postgresql_database, history=HISTORY) for _ in range(8))
        )

    assert sorted(done, key=str) == sorted([Migration(None, HEAD)] + [Migration(HEAD, HEAD)] * 7, key=str)


def test_one_of_many_concurrent_processes_migrates_sqlite(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; from sentinel.drivers.sql import engine; "
        "from sentinel.drivers.sql.history import HISTORY; "
        "print(asyncio.run(engine.migrate(sys.argv[1], history=HISTORY)).before)"
    )
    command = [sys.executable, "-c", script, f"sqlite:///{tmp_path / 'fleet.db'}"]

    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [child.communicate(timeout=TIMEOUT)[0].strip() for child in children]

    assert sorted(outputs) == sorted(["None"] + [HEAD] * 3)


@pytest.fixture(params=list(DatabaseKind))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> EmptyDatabase:
    """The URL of a database without tables, and a function that runs a statement there."""
    url = empty_database(request.param, request, tmp_path)

    def execute(statement: str) -> None:
        if url.startswith("postgresql"):
            postgresql.run(postgresql.execute(url, statement))
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute(statement)

    return url, execute


async def test_migrating_again_changes_nothing(database: EmptyDatabase) -> None:
    url, _ = database

    assert await engine.revision(url, history=HISTORY) is None
    assert await engine.migrate(url, history=HISTORY) == Migration(None, HEAD)
    assert await engine.migrate(url, history=HISTORY) == Migration(HEAD, HEAD)
    assert await engine.revision(url, history=HISTORY) == HEAD


@pytest.mark.parametrize("migrate", [False, True])
async def test_tables_of_a_newer_program_are_refused(database: EmptyDatabase, migrate: bool) -> None:
    url, execute = database
    await engine.migrate(url, history=HISTORY)
    execute(NEWER)

    with pytest.raises(Misconfigured, match=f"at revision 9999, this program knows them up to {HEAD}"):
        await engine.database(url, migrate=migrate, history=HISTORY).open()
    with pytest.raises(Misconfigured, match="9999"):
        await engine.migrate(url, history=HISTORY)


async def test_missing_tables_are_an_error_without_migrate(
    database: EmptyDatabase,
) -> None:
    url, _ = database

    with pytest.raises(schema.TablesOutdated, match="has no tables yet"):
        await engine.database(url, migrate=False, history=HISTORY).open()

    assert await engine.revision(url, history=HISTORY) is None


TOY = """
import sqlalchemy as sa
from alembic import op

revision = "toy_1"
down_revision = "{down}"

def upgrade():
    op.create_table("toy_things", sa.Column("id", sa.Text, primary_key=True))
"""


async def test_a_component_adds_its_own_migration(database: EmptyDatabase, tmp_path: Path) -> None:
    url, execute = database
    folder = tmp_path / "migrations of 100% toys"
    folder.mkdir()
    (folder / "revision_toy_1.py").write_text(TOY.format(down=HEAD))
    history = HISTORY.followed_by("toy_1", folder=folder)
    await engine.migrate(url, history=HISTORY)

    assert await engine.migrate(url, history=history) == Migration(HEAD, "toy_1")
    execute("INSERT INTO toy_things VALUES ('robot')")
    with pytest.raises(Misconfigured, match="at revision toy_1"):
        await engine.database(url, migrate=True, history=HISTORY).open()


async def test_a_migration_that_skips_a_revision_is_refused(database: EmptyDatabase, tmp_path: Path) -> None:
    url, _ = database
    (tmp_path / "revision_toy_1.py").write_text(TOY.format(down=HISTORY.revisions[-2]))
    history = HISTORY.followed_by("toy_1", folder=tmp_path)

    with pytest.raises(Misconfigured, match=f"expected the migrations .*{HEAD}, toy_1 one after the other, got"):
        await engine.migrate(url, history=history)

    assert await engine.revision(url, history=HISTORY) is None


async def test_a_migration_that_fails_leaves_nothing(database: EmptyDatabase) -> None:
    url, execute = database
    execute("CREATE TABLE fleet_answers (theirs INTEGER)")

    with pytest.raises(Exception, match="already exists"):
        await engine.migrate(url, history=HISTORY)

    execute("DROP TABLE fleet_answers")
    assert await engine.migrate(url, history=HISTORY) == Migration(None, HEAD)

"""Two tables to measure with, in both databases: documents of 1.8 kB, and a log of changes."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.schema import CreateTable

from sentinel.drivers.sql.engine.statements import POSTGRESQL, SQLITE, Statement

RESOURCES = 1_000
PAGE_SIZE = 500
DOCUMENT = b'{"padding":"' + b"x" * 1_786 + b'"}'

_metadata = MetaData()
_documents = Table(
    "bench_documents",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),
)
_entries = Table(
    "bench_entries",
    _metadata,
    Column("number", Integer, primary_key=True),
    Column("resource_id", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
)

READING = select(_documents.c.version, _documents.c.document).where(_documents.c.id == bindparam("wanted"))
UPDATING = update(_documents).where(_documents.c.id == bindparam("wanted"))
READ = Statement(READING)
UPDATE = Statement(UPDATING, "version", "document")
RECORD = Statement(insert(_entries).inline(), "resource_id", "actor", "action")

_page = select(_documents.c.document).order_by(_documents.c.id).limit(literal_column(str(PAGE_SIZE), Integer))
PAGE = Statement(select(cast(func.group_concat(_page.subquery().c.document), LargeBinary), func.count()))


def resource_id(number: int) -> str:
    return f"0192a6c0-7b1e-7c3a-9f0e-{number:012}"


def fill_sqlite(connection: sqlite3.Connection) -> None:
    for table in _metadata.sorted_tables:
        connection.execute(str(CreateTable(table).compile(dialect=SQLITE)))
    connection.execute("BEGIN")
    rows = [(resource_id(number), 1, DOCUMENT) for number in range(RESOURCES)]
    connection.executemany("INSERT INTO bench_documents (id, version, document) VALUES (?, ?, ?)", rows)
    connection.execute("COMMIT")


async def fill_postgresql(connection: Any) -> None:
    """`connection` is asyncpg's, which has no types."""
    for table in _metadata.sorted_tables:
        await connection.execute(str(CreateTable(table).compile(dialect=POSTGRESQL)))
    rows = [(resource_id(number), 1, DOCUMENT) for number in range(RESOURCES)]
    await connection.copy_records_to_table("bench_documents", records=rows)
    await connection.execute("VACUUM ANALYZE bench_documents")

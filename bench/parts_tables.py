"""Two tables to measure with, in both databases: documents of 1.8 kB, and a log of changes."""

from __future__ import annotations

import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from sentinel.drivers.sql.engine.statements import POSTGRESQL, SQLITE, Statement

RESOURCES = 1_000
PAGE_SIZE = 500
DOCUMENT = b'{"padding":"' + b"x" * 1_786 + b'"}'

_metadata = sa.MetaData()
_documents = sa.Table(
    "bench_documents",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
)
_entries = sa.Table(
    "bench_entries",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("resource_id", "actor", "action")),
)

READING = sa.select(_documents.c.version, _documents.c.document).where(_documents.c.id == sa.bindparam("wanted"))
UPDATING = sa.update(_documents).where(_documents.c.id == sa.bindparam("wanted"))
READ = Statement(READING)
UPDATE = Statement(UPDATING, "version", "document")
RECORD = Statement(sa.insert(_entries).inline(), "resource_id", "actor", "action")

_page_size = sa.literal_column(str(PAGE_SIZE), sa.Integer)
_page = sa.select(_documents.c.document).order_by(_documents.c.id).limit(_page_size)
_concatenated = sa.func.group_concat(_page.subquery().c.document)
PAGE = Statement(sa.select(sa.cast(_concatenated, sa.LargeBinary), sa.func.count()))


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

"""Creates large fleets in seconds: the server creates one resource, and SQL clones its rows.

A million requests would take half an hour. Lists and reports read resources, labels and counters; these rows are
cloned exactly, with other ids, names and regions.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Protocol

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import msgspec

REGIONS = 10
"""The number of values of the label `region`, which the clones are spread over evenly."""
NAME = "cluster-000000000000"
REGION = "region-0"


class Dialect(msgspec.Struct, frozen=True):
    """The SQL that differs between the databases.

    `series` selects the numbers from `{first}` to `{end}` (exclusive), as `numbers(i)`. `text` decodes the bytes
    `{}`, and `encoded` encodes the text `{}`. `digits` is the number `i` with twelve digits.
    """

    series: str
    text: str
    encoded: str
    digits: str


SQLITE = Dialect(
    "WITH RECURSIVE numbers(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < {end})",
    "CAST({} AS TEXT)",
    "CAST({} AS BLOB)",
    "substr('000000000000' || i, -12)",
)
POSTGRESQL = Dialect(
    "WITH numbers(i) AS (SELECT generate_series({first}, {end} - 1))",
    "convert_from({}, 'UTF8')",
    "convert_to({}, 'UTF8')",
    "lpad(i::text, 12, '0')",
)


class Cloning(Protocol):
    """Clones the only resource of a database. No server may use the database meanwhile."""

    async def clone(self, template: str, *, first: int, end: int) -> None:
        """Add clones numbered from `first` to `end` (exclusive)."""


class SqliteCloning:
    def __init__(self, file: str) -> None:
        self._file = file

    async def clone(self, template: str, *, first: int, end: int) -> None:
        with closing(sqlite3.connect(self._file, isolation_level=None)) as connection:
            # Durability does not matter here, and a journal would write everything twice.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA cache_size = -200000")
            connection.execute("BEGIN")
            for statement in statements(SQLITE, template, first=first, end=end):
                connection.execute(statement)
            connection.execute("COMMIT")


class PostgresqlCloning:
    def __init__(self, url: str) -> None:
        self._url = url

    async def clone(self, template: str, *, first: int, end: int) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("SET synchronous_commit = off")
            for statement in statements(POSTGRESQL, template, first=first, end=end):
                await connection.execute(statement)
            # Autovacuum would do this over time while a fleet grows slowly.
            await connection.execute(
                "VACUUM ANALYZE fleet_resources, fleet_labels, fleet_attributes, fleet_counts"
            )
        finally:
            await connection.close()


def statements(dialect: Dialect, template: str, *, first: int, end: int) -> list[str]:
    """Return the SQL that clones. It contains no foreign input."""
    series = dialect.series.format(first=first, end=end)
    clone = f"'{template[:-12]}' || {dialect.digits}"
    name = f"'{NAME[:-12]}' || {dialect.digits}"
    region = f"'{REGION[:-1]}' || (i % {REGIONS})"

    def rewritten(column: str) -> str:
        replaced = f"replace({dialect.text.format(column)}, '{template}', {clone})"
        replaced = f"replace({replaced}, '{NAME}', {name})"
        return dialect.encoded.format(f"replace({replaced}, '{REGION}', {region})")

    resources = (
        "INSERT INTO fleet_resources (id, plural, name, parent, root, created_time, updated_time, version, "  # noqa: S608
        f"is_ready, adapters, labels, waiting, document, statuses, attributes) {series} "
        f"SELECT {clone}, plural, {name}, parent, {clone}, created_time + i, updated_time + i, version, "
        f"is_ready, adapters, {rewritten('labels')}, waiting, {rewritten('document')}, statuses, attributes "
        f"FROM numbers, fleet_resources WHERE id = '{template}'"
    )
    labels = (
        "INSERT INTO fleet_labels (resource_id, key, value, number, plural, created_time) "  # noqa: S608
        f"{series} SELECT {clone}, key, replace(value, '{REGION}', {region}), number, plural, "
        f"created_time + i FROM numbers, fleet_labels WHERE resource_id = '{template}'"
    )
    attributes = (
        "INSERT INTO fleet_attributes (resource_id, key, value, plural, created_time) "  # noqa: S608
        f"{series} SELECT {clone}, key, value, plural, created_time + i FROM numbers, fleet_attributes "
        f"WHERE resource_id = '{template}'"
    )
    counts = f"UPDATE fleet_counts SET total = total + {end - first} WHERE total > 0"  # noqa: S608
    return [resources, labels, attributes, counts]

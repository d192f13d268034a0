"""Attributes of resources: the generation and the status of each condition, indexed for searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_BATCH_SIZE = 100
"""Documents in memory at a time; each may have a megabyte."""

_resources = sa.table(
    "fleet_resources",
    sa.column("id", TEXT),
    sa.column("plural", TEXT),
    sa.column("created_time", NUMBER),
    sa.column("document", sa.LargeBinary),
    sa.column("attributes", sa.LargeBinary),
)


def upgrade() -> None:
    op.add_column("fleet_resources", sa.Column("attributes", sa.LargeBinary, nullable=False, server_default="{}"))
    attributes = op.create_table(
        "fleet_attributes",
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "key", name="fleet_attributes_key"),
        sa.ForeignKeyConstraint(["resource_id"], ["fleet_resources.id"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    last = ""
    while batch := _next_batch(connection, last):
        _fill(connection, attributes, batch)
        last = batch[-1].id
    # After the rows: building an index once is cheaper than updating it for every row.
    op.create_index(
        "fleet_attributes_by_value", "fleet_attributes", ["plural", "key", "value", "created_time", "resource_id"]
    )


def _next_batch(connection: sa.Connection, last: str) -> Sequence[sa.Row[tuple[str, str, int, bytes]]]:
    rows = (
        sa.select(_resources.c.id, _resources.c.plural, _resources.c.created_time, _resources.c.document)
        .where(_resources.c.id > last)
        .order_by(_resources.c.id)
        .limit(_BATCH_SIZE)
    )
    return connection.execute(rows).all()


def _fill(
    connection: sa.Connection, attributes: sa.Table, batch: Sequence[sa.Row[tuple[str, str, int, bytes]]]
) -> None:
    by_id = {row.id: _attributes(row.document) for row in batch}
    connection.execute(
        sa.update(_resources)
        .where(_resources.c.id == sa.bindparam("of"))
        .values(attributes=sa.bindparam("encoded", type_=sa.LargeBinary)),
        [{"of": resource_id, "encoded": msgspec.json.encode(found)} for resource_id, found in by_id.items()],
    )
    connection.execute(
        sa.insert(attributes),
        [
            {
                "resource_id": row.id,
                "key": key,
                "value": value,
                "plural": row.plural,
                "created_time": row.created_time,
            }
            for row in batch
            for key, value in by_id[row.id].items()
        ],
    )


def _attributes(document: bytes) -> dict[str, str]:
    # Not by a struct: Alembic's modules cannot resolve the names of annotations.
    members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    attributes = {"generation": bytes(members.get("generation", b"1")).decode()}
    status = msgspec.json.decode(members.get("status", b"{}"), type=dict[str, Any])
    conditions = status.get("conditions", ())
    return attributes | {f"status.conditions.{each['type']}": each["status"] for each in conditions}

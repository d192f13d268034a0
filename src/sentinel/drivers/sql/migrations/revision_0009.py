"""The hub: secrets, and which versions name them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_PREFIX: Final = "secret:"
_BATCH: Final = 500

_versions = sa.table(
    "hub_config_versions",
    sa.column("config_id", TEXT),
    sa.column("number", NUMBER),
    sa.column("details", sa.LargeBinary),
)


def upgrade() -> None:
    op.create_table(
        "hub_secrets",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("key_id", TEXT, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("updated_time", NUMBER, nullable=False),
        sa.Column("offered_to", TEXT, nullable=True),
        sa.PrimaryKeyConstraint("name", name="hub_secrets_name"),
        sqlite_with_rowid=False,
    )
    uses = op.create_table(
        "hub_secret_uses",
        sa.Column("secret", TEXT, nullable=False),
        sa.Column("config_id", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("secret", "config_id", "number", name="hub_secret_uses_version"),
        sqlite_with_rowid=False,
    )
    op.create_index("hub_secret_uses_by_config", "hub_secret_uses", ["config_id"])
    for rows in _batches():
        if rows:
            op.get_bind().execute(sa.insert(uses), rows)


def _batches() -> Iterator[list[dict[str, Any]]]:
    """Yield the uses of the versions that are stored already."""
    key = (_versions.c.config_id, _versions.c.number)
    after = ("", 0)
    while True:
        page = (
            op.get_bind()
            .execute(
                sa.select(*key, _versions.c.details).where(sa.tuple_(*key) > after).order_by(*key).limit(_BATCH)
            )
            .fetchall()
        )
        if not page:
            return
        yield [use for row in page for use in _uses(*row)]
        after = (page[-1][0], page[-1][1])


def _uses(config_id: str, number: int, details: bytes) -> Iterator[dict[str, Any]]:
    decoded = json.loads(bytes(details))
    for reference in dict.fromkeys(decoded.get("secrets", ())):
        if reference.startswith(_PREFIX):
            yield {
                "secret": reference.removeprefix(_PREFIX),
                "config_id": config_id,
                "number": number,
                "hash": decoded["hash"].encode(),
            }

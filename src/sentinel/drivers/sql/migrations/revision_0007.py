"""The key with which hubs sign session tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "hub_signing_keys",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("key_id", TEXT, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="hub_signing_keys_name"),
        sqlite_with_rowid=False,
    )

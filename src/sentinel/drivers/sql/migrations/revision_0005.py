"""The log of changes, which streams follow."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "fleet_changes",
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("parent", TEXT, nullable=False),
        sa.Column("may_leave", sa.Boolean, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("number", "resource_id", "plural", "parent", name="fleet_changes_number"),
        sqlite_with_rowid=False,
    )
    log = op.create_table(
        "fleet_change_log",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("expired", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="fleet_change_log_id"),
        sqlite_with_rowid=False,
    )
    op.execute(log.insert().inline().values(id=secrets.token_hex(8), expired=0))

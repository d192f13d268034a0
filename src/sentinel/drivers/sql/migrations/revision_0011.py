"""The hub: webhooks, and what they still have to deliver."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "hub_webhooks",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("holder", TEXT, nullable=False),
        sa.Column("position", NUMBER, nullable=False),
        sa.Column("lease_until", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="hub_webhooks_name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hub_webhook_deliveries",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("webhook", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("next_time", NUMBER, nullable=False),
        sa.Column("error", TEXT, nullable=False),
        sa.Column("failed_time", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="hub_webhook_deliveries_id"),
    )
    op.create_index("hub_webhook_deliveries_by_webhook", "hub_webhook_deliveries", ["webhook", "next_time"])

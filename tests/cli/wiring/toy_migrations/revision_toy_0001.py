"""The table of the toy component."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "toy_0001"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "toy_notes",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="toy_notes_name"),
    )

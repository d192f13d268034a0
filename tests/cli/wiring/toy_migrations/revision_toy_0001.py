"""The table of the toy component."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sentinel.drivers.sql.history import HISTORY

revision = "toy_0001"
down_revision = HISTORY.head


def upgrade() -> None:
    op.create_table(
        "toy_notes",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="toy_notes_name"),
    )

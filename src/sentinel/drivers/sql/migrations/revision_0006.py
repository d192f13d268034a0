"""Failed sign-ins, which all servers on the database count together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "identity_failed_sign_ins",
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("times", TEXT, nullable=False),
        sa.Column("last_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("key", name="identity_failed_sign_ins_key"),
        sqlite_with_rowid=False,
    )
    op.create_index("identity_failed_sign_ins_by_time", "identity_failed_sign_ins", ["last_time"])

"""Identities: users, tokens and sign-ins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "identity_users",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("password_hash", TEXT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.Column("updated_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="identity_users_name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "identity_tokens",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("adapter", TEXT, nullable=False),
        sa.Column("instance", TEXT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.Column("expires_time", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="identity_tokens_id"),
        sa.UniqueConstraint("digest", name="identity_tokens_digest"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "identity_sign_ins",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("user_name", TEXT, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.Column("expires_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="identity_sign_ins_digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("identity_sign_ins_by_user", "identity_sign_ins", ["user_name"])
    op.create_index("identity_sign_ins_by_expiry", "identity_sign_ins", ["expires_time"])
    revisions = op.create_table(
        "identity_revision",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="identity_revision_id"),
    )
    op.get_bind().execute(sa.insert(revisions), [{"id": 1, "number": 0}])

"""Deployments of the hub."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _create_deployments()
    _create_rows()
    op.create_table(
        "hub_deployment_events",
        sa.Column("deployment_id", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("deployment_id", "number", name="hub_deployment_events_number"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hub_deployment_lock",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_deployment_lock_id"),
    )


def _create_deployments() -> None:
    op.create_table(
        "hub_deployments",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("config_id", TEXT, nullable=False),
        sa.Column("revision", NUMBER, nullable=False),
        sa.Column("is_over", sa.Boolean, nullable=False),
        sa.Column("holds_all", sa.Boolean, nullable=False),
        sa.Column("selector", TEXT, nullable=True),
        sa.Column("offered", NUMBER, nullable=True),
        sa.Column("progress", sa.LargeBinary, nullable=False),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_deployments_id"),
    )
    op.create_index("hub_deployments_by_state", "hub_deployments", ["state", "id"])
    op.create_index(
        "hub_deployments_active",
        "hub_deployments",
        ["id"],
        sqlite_where=sa.text("is_over = 0"),
        postgresql_where=sa.text("is_over = false"),
    )
    is_offered = sa.text("selector IS NOT NULL AND offered IS NOT NULL")
    op.create_index(
        "hub_deployments_offered",
        "hub_deployments",
        ["selector", "offered", "id"],
        sqlite_where=is_offered,
        postgresql_where=is_offered,
    )


def _create_rows() -> None:
    op.create_table(
        "hub_deployment_rows",
        sa.Column("deployment_id", TEXT, nullable=False),
        sa.Column("position", NUMBER, nullable=False),
        sa.Column("instance_id", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("previous_config", TEXT, nullable=True),
        sa.Column("revision", NUMBER, nullable=False),
        sa.Column("details", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("deployment_id", "position", name="hub_deployment_rows_position"),
        sa.UniqueConstraint("deployment_id", "instance_id", name="hub_deployment_rows_instance"),
    )
    op.create_index("hub_deployment_rows_by_revision", "hub_deployment_rows", ["deployment_id", "revision"])

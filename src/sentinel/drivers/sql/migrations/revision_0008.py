"""The hub: instances, configurations, metrics and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _create_instances()
    _create_configs()
    _create_metrics()
    _create_events()


def _create_instances() -> None:
    op.create_table(
        "hub_instances",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("since", NUMBER, nullable=False),
        sa.Column("incarnation", NUMBER, nullable=False),
        sa.Column("session", NUMBER, nullable=False),
        sa.Column("last_seen", NUMBER, nullable=False),
        sa.Column("drain_deadline", NUMBER, nullable=True),
        sa.Column("assigned_config", TEXT, nullable=True),
        sa.Column("assigned_hash", sa.LargeBinary, nullable=True),
        sa.Column("reported_hash", sa.LargeBinary, nullable=False),
        sa.Column("last_in_sync", NUMBER, nullable=True),
        sa.Column("labels", sa.LargeBinary, nullable=False),
        sa.Column("report", sa.LargeBinary, nullable=False),
        sa.Column("description", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_instances_id"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Leaves room beside each row for what the next flush writes. Otherwise every flush would add pages, and
        # index each row again.
        op.execute("ALTER TABLE hub_instances SET (fillfactor = 50)")
    op.create_index("hub_instances_by_state", "hub_instances", ["state", "id"])
    op.create_index("hub_instances_by_config", "hub_instances", ["assigned_config"])
    out_of_sync = sa.text("assigned_hash <> reported_hash AND state <> 'removed'")
    op.create_index(
        "hub_instances_out_of_sync",
        "hub_instances",
        ["id"],
        sqlite_where=out_of_sync,
        postgresql_where=out_of_sync,
    )
    op.create_table(
        "hub_assigned_versions",
        sa.Column("instance_id", TEXT, nullable=False),
        sa.Column("incarnation", NUMBER, nullable=False),
        sa.Column("config_id", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint(
            "instance_id", "incarnation", "config_id", "number", name="hub_assigned_versions_version"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("hub_assigned_versions_by_config", "hub_assigned_versions", ["config_id"])


def _create_configs() -> None:
    op.create_table(
        "hub_configs",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("latest_version", NUMBER, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.Column("updated_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_configs_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hub_config_versions",
        sa.Column("config_id", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("details", sa.LargeBinary, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("config_id", "number", name="hub_config_versions_number"),
    )


def _create_metrics() -> None:
    op.create_table(
        "hub_metrics",
        sa.Column("interval_number", NUMBER, nullable=False),
        sa.Column("instance_id", TEXT, nullable=False),
        sa.Column("incarnation", NUMBER, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("is_thinned", sa.Boolean, nullable=False),
        sa.Column("requests_total", NUMBER, nullable=False),
        sa.Column("requests_failed", NUMBER, nullable=False),
        sa.Column("latency_p50_ms", sa.Double, nullable=False),
        sa.Column("latency_p99_ms", sa.Double, nullable=False),
        sa.Column("bytes_sent", NUMBER, nullable=False),
        sa.Column("bytes_received", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("interval_number", "instance_id", "incarnation", "time", name="hub_metrics_time"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "hub_metrics_not_thinned",
        "hub_metrics",
        ["interval_number", "instance_id", "incarnation", "time"],
        sqlite_where=sa.text("is_thinned = 0"),
        postgresql_where=sa.text("is_thinned = false"),
    )


def _create_events() -> None:
    op.create_table(
        "hub_events",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("number", NUMBER, nullable=True),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_events_id"),
        sa.UniqueConstraint("number", name="hub_events_number"),
    )
    log = op.create_table(
        "hub_log",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="hub_log_id"),
    )
    op.get_bind().execute(sa.insert(log), [{"id": 1, "number": 0}])

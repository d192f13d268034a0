"""The fleet: resources, their labels, reports and history, and the audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("PRAGMA application_id = 1397642316")
    op.create_table(
        "fleet_resources",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("parent", TEXT, nullable=False),
        sa.Column("root", TEXT, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.Column("updated_time", NUMBER, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("is_ready", sa.Boolean, nullable=False),
        sa.Column("adapters", TEXT, nullable=False),
        sa.Column("labels", sa.LargeBinary, nullable=False),
        sa.Column("waiting", sa.LargeBinary, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("statuses", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="fleet_resources_id"),
        sa.UniqueConstraint("plural", "parent", "name", name="fleet_resources_name"),
    )
    op.create_index("fleet_resources_by_created", "fleet_resources", ["plural", "created_time", "id"])
    op.create_index("fleet_resources_by_updated", "fleet_resources", ["plural", "updated_time", "id"])
    op.create_index("fleet_resources_by_name", "fleet_resources", ["plural", "name", "id"])
    op.create_index("fleet_resources_by_id", "fleet_resources", ["plural", "id"])
    op.create_index("fleet_resources_by_parent", "fleet_resources", ["parent", "plural", "created_time", "id"])
    op.create_index("fleet_resources_by_adapters", "fleet_resources", ["plural", "adapters", "id"])
    op.create_table(
        "fleet_labels",
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=True),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("created_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "key", name="fleet_labels_key"),
        sa.ForeignKeyConstraint(["resource_id"], ["fleet_resources.id"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "fleet_labels_by_value", "fleet_labels", ["plural", "key", "value", "created_time", "resource_id"]
    )
    op.create_index(
        "fleet_labels_by_key", "fleet_labels", ["plural", "key", "created_time", "resource_id", "number"]
    )
    op.create_table(
        "fleet_waits",
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("adapter", TEXT, nullable=False),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("since", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("resource_id", "adapter", name="fleet_waits_adapter"),
        sa.ForeignKeyConstraint(["resource_id"], ["fleet_resources.id"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("fleet_waits_by_since", "fleet_waits", ["plural", "adapter", "since"])
    op.create_table(
        "fleet_counts",
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("is_ready", sa.Boolean, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("total", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("plural", "is_ready", "slot", name="fleet_counts_slot"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fleet_discarded",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("received_time", NUMBER, nullable=False),
        sa.Column("report", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="fleet_discarded_id"),
        sa.ForeignKeyConstraint(["resource_id"], ["fleet_resources.id"], ondelete="CASCADE"),
    )
    op.create_index("fleet_discarded_by_resource", "fleet_discarded", ["resource_id", "id"])
    op.create_index("fleet_discarded_by_time", "fleet_discarded", ["received_time"])
    op.create_table(
        "fleet_generations",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("is_past", sa.Boolean, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="fleet_generations_id"),
    )
    op.create_index("fleet_generations_by_resource", "fleet_generations", ["resource_id", "id"])
    op.create_index("fleet_generations_by_time", "fleet_generations", ["is_past", "time"])
    op.create_table(
        "fleet_audit",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("plural", TEXT, nullable=False),
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("generation", NUMBER, nullable=False),
        sa.Column("detail", TEXT, nullable=False),
        sa.Column("request_id", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="fleet_audit_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("fleet_audit_by_actor", "fleet_audit", ["actor", "id"])
    op.create_index("fleet_audit_by_action", "fleet_audit", ["action", "id"])
    op.create_index("fleet_audit_by_resource", "fleet_audit", ["resource_id", "id"])
    op.create_table(
        "fleet_answers",
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="fleet_answers_key"),
    )
    op.create_index("fleet_answers_by_time", "fleet_answers", ["time"])
    if op.get_bind().dialect.name == "postgresql":
        # A resource with its statuses is 2 to 6 kB. In its row, a list reads it without decompressing it from the
        # TOAST table. With free space on the page, a report updates no index.
        op.execute("ALTER TABLE fleet_resources SET (toast_tuple_target = 8160, fillfactor = 70)")
        op.execute("ALTER TABLE fleet_counts SET (fillfactor = 20)")

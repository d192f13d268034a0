"""The fleet's tables.

Statements are built from these definitions. The migrations create the tables, and a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, required

metadata = MetaData()

resources = Table(
    "fleet_resources",
    metadata,
    *required(TEXT, "id", "plural", "name", "parent", "root"),
    *required(NUMBER, "created_time", "updated_time", "version"),
    Column("is_ready", Boolean, nullable=False),
    Column("adapters", TEXT, nullable=False),
    # Copies of the rows in `labels` and `waits`, so that one statement reads a whole resource.
    *required(LargeBinary(), "labels", "waiting"),
    # Long columns last: SQLite reads a row from its start, and lists skip the statuses.
    *required(LargeBinary(), "document", "statuses"),
    # A copy of the rows in `attributes`. Last, because only a whole resource is read with it.
    Column("attributes", LargeBinary(), nullable=False, server_default="{}"),
    PrimaryKeyConstraint("id", name="fleet_resources_id"),
    UniqueConstraint("plural", "parent", "name", name="fleet_resources_name"),
    Index("fleet_resources_by_created", "plural", "created_time", "id"),
    Index("fleet_resources_by_updated", "plural", "updated_time", "id"),
    Index("fleet_resources_by_name", "plural", "name", "id"),
    Index("fleet_resources_by_id", "plural", "id"),
    Index("fleet_resources_by_parent", "parent", "plural", "created_time", "id"),
    Index("fleet_resources_by_adapters", "plural", "adapters", "id"),
)

labels = Table(
    "fleet_labels",
    metadata,
    Column("resource_id", TEXT, ForeignKey(resources.c.id, ondelete="CASCADE"), nullable=False),
    *required(TEXT, "key", "value"),
    Column("number", NUMBER, nullable=True),
    # Copies of the resource's columns, so that a filtered list reads only this table's index.
    Column("plural", TEXT, nullable=False),
    Column("created_time", NUMBER, nullable=False),
    PrimaryKeyConstraint("resource_id", "key", name="fleet_labels_key"),
    Index("fleet_labels_by_value", "plural", "key", "value", "created_time", "resource_id"),
    Index("fleet_labels_by_key", "plural", "key", "created_time", "resource_id", "number"),
    sqlite_with_rowid=False,
)

attributes = Table(
    "fleet_attributes",
    metadata,
    # What a search compares besides labels, name and id, in the same form as labels.
    Column("resource_id", TEXT, ForeignKey(resources.c.id, ondelete="CASCADE"), nullable=False),
    *required(TEXT, "key", "value", "plural"),
    Column("created_time", NUMBER, nullable=False),
    PrimaryKeyConstraint("resource_id", "key", name="fleet_attributes_key"),
    Index("fleet_attributes_by_value", "plural", "key", "value", "created_time", "resource_id"),
    sqlite_with_rowid=False,
)

waits = Table(
    "fleet_waits",
    metadata,
    Column("resource_id", TEXT, ForeignKey(resources.c.id, ondelete="CASCADE"), nullable=False),
    *required(TEXT, "adapter", "plural"),
    Column("since", NUMBER, nullable=False),
    PrimaryKeyConstraint("resource_id", "adapter", name="fleet_waits_adapter"),
    Index("fleet_waits_by_since", "plural", "adapter", "since"),
    sqlite_with_rowid=False,
)

counts = Table(
    "fleet_counts",
    metadata,
    Column("plural", TEXT, nullable=False),
    Column("is_ready", Boolean, nullable=False),
    # One counter is spread over several rows, so that concurrent transactions rarely wait for each other.
    Column("slot", Integer, nullable=False),
    Column("total", NUMBER, nullable=False),
    PrimaryKeyConstraint("plural", "is_ready", "slot", name="fleet_counts_slot"),
    sqlite_with_rowid=False,
)

discarded = Table(
    "fleet_discarded",
    metadata,
    Column("id", NUMBER, autoincrement=True, nullable=False),
    Column("resource_id", TEXT, ForeignKey(resources.c.id, ondelete="CASCADE"), nullable=False),
    Column("received_time", NUMBER, nullable=False),
    Column("report", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="fleet_discarded_id"),
    Index("fleet_discarded_by_resource", "resource_id", "id"),
    Index("fleet_discarded_by_time", "received_time"),
)

generations = Table(
    "fleet_generations",
    metadata,
    # Not the generation: when a removed resource's id is reused, its generations restart at 1.
    Column("id", NUMBER, autoincrement=True, nullable=False),
    Column("resource_id", TEXT, nullable=False),
    Column("time", NUMBER, nullable=False),
    # True once there is a newer generation or the resource is removed; indexed to find what may expire.
    Column("is_past", Boolean, nullable=False),
    Column("record", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="fleet_generations_id"),
    Index("fleet_generations_by_resource", "resource_id", "id"),
    Index("fleet_generations_by_time", "is_past", "time"),
)

changes = Table(
    "fleet_changes",
    metadata,
    # Of the transaction, not unique: see `change_statements`.
    Column("number", NUMBER, nullable=False),
    *required(TEXT, "resource_id", "plural", "parent"),
    Column("may_leave", Boolean, nullable=False),
    # No index by time: the numbers rise with it.
    Column("time", NUMBER, nullable=False),
    PrimaryKeyConstraint("number", "resource_id", "plural", "parent", name="fleet_changes_number"),
    sqlite_with_rowid=False,
)

change_log = Table(
    "fleet_change_log",
    metadata,
    # One row. `id` tells this log from that of another database, `expired` is the highest number that was deleted.
    Column("id", TEXT, nullable=False),
    Column("expired", NUMBER, nullable=False),
    PrimaryKeyConstraint("id", name="fleet_change_log_id"),
    sqlite_with_rowid=False,
)

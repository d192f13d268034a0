"""The fleet's tables, as both databases have them.

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

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT

metadata = MetaData()

resources = Table(
    "fleet_resources",
    metadata,
    Column("id", TEXT, nullable=False),
    Column("plural", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("parent", TEXT, nullable=False),
    Column("root", TEXT, nullable=False),
    Column("created_time", NUMBER, nullable=False),
    Column("updated_time", NUMBER, nullable=False),
    Column("version", NUMBER, nullable=False),
    Column("is_ready", Boolean, nullable=False),
    Column("adapters", TEXT, nullable=False),
    # Once more what `labels` and `waits` index, so that a resource is read by one statement.
    Column("labels", LargeBinary, nullable=False),
    Column("waiting", LargeBinary, nullable=False),
    # The long ones last: SQLite reads a row from its start, and lists want no statuses.
    Column("document", LargeBinary, nullable=False),
    Column("statuses", LargeBinary, nullable=False),
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
    Column("key", TEXT, nullable=False),
    Column("value", TEXT, nullable=False),
    Column("number", NUMBER, nullable=True),
    # The resource's own, so that a filtered list is walked in its order by this table's index alone.
    Column("plural", TEXT, nullable=False),
    Column("created_time", NUMBER, nullable=False),
    PrimaryKeyConstraint("resource_id", "key", name="fleet_labels_key"),
    Index("fleet_labels_by_value", "plural", "key", "value", "created_time", "resource_id"),
    Index("fleet_labels_by_key", "plural", "key", "created_time", "resource_id", "number"),
    sqlite_with_rowid=False,
)

waits = Table(
    "fleet_waits",
    metadata,
    Column("resource_id", TEXT, ForeignKey(resources.c.id, ondelete="CASCADE"), nullable=False),
    Column("adapter", TEXT, nullable=False),
    Column("plural", TEXT, nullable=False),
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
    # Several rows for one number, so that those who create resources at the same time seldom wait for each other.
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
    # A number of its own: an id that was given once may be given again when its resource is gone, and then its
    # generations begin anew.
    Column("id", NUMBER, autoincrement=True, nullable=False),
    Column("resource_id", TEXT, nullable=False),
    Column("time", NUMBER, nullable=False),
    # A newer one is there, or the resource is gone: what may be forgotten is found without passing over the rest.
    Column("is_past", Boolean, nullable=False),
    Column("record", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="fleet_generations_id"),
    Index("fleet_generations_by_resource", "resource_id", "id"),
    Index("fleet_generations_by_time", "is_past", "time"),
)

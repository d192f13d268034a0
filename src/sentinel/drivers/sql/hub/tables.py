"""The hub's tables.

Statements are built from these definitions. The migrations create the tables, and a test compares the two. What
agents write about themselves is stored as JSON in bytes, because PostgreSQL refuses texts with a NUL.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    and_,
    false,
    literal_column,
)

from sentinel.core.hub.states import State
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, required

INSTANCE_CONSTRAINT: Final = "hub_instances_id"
CONFIG_CONSTRAINT: Final = "hub_configs_id"
VERSION_CONSTRAINT: Final = "hub_config_versions_number"

metadata = MetaData()

instances = Table(
    "hub_instances",
    metadata,
    *required(TEXT, "id", "state"),
    *required(NUMBER, "since", "incarnation", "session", "last_seen"),
    Column("drain_deadline", NUMBER, nullable=True),
    Column("assigned_config", TEXT, nullable=True),
    Column("assigned_hash", LargeBinary, nullable=True),
    Column("reported_hash", LargeBinary, nullable=False),
    Column("last_in_sync", NUMBER, nullable=True),
    # The report changes with heartbeats, the description only with transactions.
    *required(LargeBinary(), "labels", "report", "description"),
    PrimaryKeyConstraint("id", name=INSTANCE_CONSTRAINT),
    # Not by last_seen: every flush would change the index. The sweeper reads the instances of a state instead.
    Index("hub_instances_by_state", "state", "id"),
    Index("hub_instances_by_config", "assigned_config"),
)

# In SQL text, because an index with a condition is used only by queries with the same condition.
REMOVED = literal_column(f"'{State.REMOVED.value}'", TEXT)
is_present = instances.c.state != REMOVED
is_out_of_sync = and_(instances.c.assigned_hash != instances.c.reported_hash, is_present)
Index("hub_instances_out_of_sync", instances.c.id, sqlite_where=is_out_of_sync, postgresql_where=is_out_of_sync)

configs = Table(
    "hub_configs",
    metadata,
    *required(TEXT, "id", "created_by"),
    *required(NUMBER, "latest_version", "created_time", "updated_time"),
    PrimaryKeyConstraint("id", name=CONFIG_CONSTRAINT),
    sqlite_with_rowid=False,
)

versions = Table(
    "hub_config_versions",
    metadata,
    Column("config_id", TEXT, nullable=False),
    Column("number", NUMBER, nullable=False),
    Column("details", LargeBinary, nullable=False),
    # Last: SQLite reads a row from its start, and lists skip the contents.
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("config_id", "number", name=VERSION_CONSTRAINT),
)

secret_uses = Table(
    "hub_secret_uses",
    metadata,
    # Which version names which secret of the hub. Versions never change, so neither does this.
    *required(TEXT, "secret", "config_id"),
    Column("number", NUMBER, nullable=False),
    # That of the version, by which the instances are found that it is assigned to.
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("secret", "config_id", "number", name="hub_secret_uses_version"),
    Index("hub_secret_uses_by_config", "config_id"),
    sqlite_with_rowid=False,
)

assigned = Table(
    "hub_assigned_versions",
    metadata,
    # What each incarnation of an instance has ever been assigned.
    Column("instance_id", TEXT, nullable=False),
    Column("incarnation", NUMBER, nullable=False),
    Column("config_id", TEXT, nullable=False),
    Column("number", NUMBER, nullable=False),
    PrimaryKeyConstraint(
        "instance_id", "incarnation", "config_id", "number", name="hub_assigned_versions_version"
    ),
    Index("hub_assigned_versions_by_config", "config_id"),
    sqlite_with_rowid=False,
)

metrics = Table(
    "hub_metrics",
    metadata,
    # The number of the interval first: so what a flush adds for thousands of instances is on few pages, and what
    # expires, too. Ordered by instance, each sample would be on a page of its own.
    Column("interval_number", NUMBER, nullable=False),
    Column("instance_id", TEXT, nullable=False),
    *required(NUMBER, "incarnation", "time"),
    Column("is_thinned", Boolean, nullable=False),
    *required(NUMBER, "requests_total", "requests_failed"),
    *required(Double(), "latency_p50_ms", "latency_p99_ms"),
    *required(NUMBER, "bytes_sent", "bytes_received"),
    PrimaryKeyConstraint("interval_number", "instance_id", "incarnation", "time", name="hub_metrics_time"),
    sqlite_with_rowid=False,
)
is_not_thinned = metrics.c.is_thinned == false()
Index(
    "hub_metrics_not_thinned",
    *metrics.primary_key,
    sqlite_where=is_not_thinned,
    postgresql_where=is_not_thinned,
)

events = Table(
    "hub_events",
    metadata,
    Column("id", NUMBER, autoincrement=True, nullable=False),
    # Null until a reader has numbered it: see `event_log`.
    Column("number", NUMBER, nullable=True),
    Column("time", NUMBER, nullable=False),
    *required(TEXT, "type", "subject"),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="hub_events_id"),
    UniqueConstraint("number", name="hub_events_number"),
)
log = Table(
    "hub_log",
    metadata,
    # One row, which the migration inserts: the number of the newest event. Its lock orders readers that number.
    *required(NUMBER, "id", "number"),
    PrimaryKeyConstraint("id", name="hub_log_id"),
)

"""The hub's tables of deployments. The columns besides the encoded values are those that queries use."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    and_,
    false,
)

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, required

metadata = MetaData()

deployments = Table(
    "hub_deployments",
    metadata,
    *required(TEXT, "id", "state", "config_id"),
    Column("revision", NUMBER, nullable=False),
    # Whether nothing is in progress any more, and whether all targets are held or only those in progress.
    *required(Boolean(), "is_over", "holds_all"),
    # What new instances are offered, and when the deployment was over; null if it is not offered to any.
    Column("selector", TEXT, nullable=True),
    Column("offered", NUMBER, nullable=True),
    # The progress changes with every step, the request never.
    *required(LargeBinary(), "progress", "request"),
    PrimaryKeyConstraint("id", name="hub_deployments_id"),
    Index("hub_deployments_by_state", "state", "id"),
)
is_active = deployments.c.is_over == false()
Index("hub_deployments_active", deployments.c.id, sqlite_where=is_active, postgresql_where=is_active)
is_offered = and_(deployments.c.selector.is_not(None), deployments.c.offered.is_not(None))
Index(
    "hub_deployments_offered",
    deployments.c.selector,
    deployments.c.offered,
    deployments.c.id,
    sqlite_where=is_offered,
    postgresql_where=is_offered,
)

rows = Table(
    "hub_deployment_rows",
    metadata,
    Column("deployment_id", TEXT, nullable=False),
    Column("position", NUMBER, nullable=False),
    *required(TEXT, "instance_id", "state"),
    Column("is_open", Boolean, nullable=False),
    Column("previous_config", TEXT, nullable=True),
    Column("revision", NUMBER, nullable=False),
    Column("details", LargeBinary, nullable=False),
    PrimaryKeyConstraint("deployment_id", "position", name="hub_deployment_rows_position"),
    UniqueConstraint("deployment_id", "instance_id", name="hub_deployment_rows_instance"),
    Index("hub_deployment_rows_by_revision", "deployment_id", "revision"),
)

events = Table(
    "hub_deployment_events",
    metadata,
    Column("deployment_id", TEXT, nullable=False),
    *required(NUMBER, "number", "time"),
    Column("type", TEXT, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("deployment_id", "number", name="hub_deployment_events_number"),
    sqlite_with_rowid=False,
)

target_lock = Table(
    "hub_deployment_lock",
    metadata,
    # One row, made when it is first needed. Its lock orders transactions that check whether instances are free.
    Column("id", NUMBER, autoincrement=False, nullable=False),
    PrimaryKeyConstraint("id", name="hub_deployment_lock_id"),
)

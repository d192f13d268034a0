"""Runs a migration on the given connection, in its open transaction."""

from __future__ import annotations

from alembic import context

from sentinel.drivers.sql.engine.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()

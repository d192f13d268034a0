"""How Alembic runs a migration: on the connection it is given, within the transaction that is open on it."""

from __future__ import annotations

from alembic import context

from sentinel.drivers.sql.engine.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()

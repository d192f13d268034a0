"""How Alembic is run; the revisions themselves are those of a `History`."""

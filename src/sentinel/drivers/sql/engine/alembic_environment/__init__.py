"""Alembic's environment. A `History` says which revisions there are."""

"""Alembic's environment. The revisions come from a `History`."""

"""The hub's tables in SQL."""

"""The database of a process: opened once, shared by the stores of every component.

A store is built on a database and neither opens nor closes it. SQLite and PostgreSQL ship, and one in memory in
`sentinel.testing`.
"""

from __future__ import annotations

from typing import Protocol


class Database(Protocol):
    """Where a process keeps its data."""

    async def open(self) -> None:
        """Raises `Misconfigured`, `Unavailable`. Harmless when repeated."""

    async def close(self) -> None:
        """Finishes what is under way. Harmless when repeated, or when it was never opened."""

    def trouble(self) -> str | None:
        """Why the database cannot be used at this moment, or None. For readiness; does no I/O."""


class AlreadyExists(Exception):
    """A value that must be unique is in use. The transaction is over, and nothing of it was written."""

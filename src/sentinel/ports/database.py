"""The database of a process: opened once, shared by the stores of all components.

A store is built on a database and neither opens nor closes it. The implementations are SQLite, PostgreSQL, and
memory in `sentinel.testing`.
"""

from __future__ import annotations

from typing import Protocol


class Database(Protocol):
    """The database of a process."""

    async def open(self) -> None:
        """Idempotent. Raises `Misconfigured`, `Unavailable`."""

    async def close(self) -> None:
        """Finish calls in progress. Idempotent, and allowed if the database was never opened."""

    def unavailable_reason(self) -> str | None:
        """Why the database cannot be used now, or None. For readiness; does no I/O."""


class AlreadyExists(Exception):
    """A value that must be unique is in use. The transaction is over, and nothing of it was written."""

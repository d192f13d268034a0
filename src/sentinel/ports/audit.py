"""The audit: every write of all components, with its actor.

An entry is written in the same transaction as the write it describes, so neither exists without the other. The
implementations are SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.core.access import Role


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One write: who did what to which resource, when, and from where."""

    id: str
    """A UUIDv7, so that ids sort by time."""
    time: datetime
    actor: str
    role: Role
    address: str
    """Of the caller; empty if unknown."""
    action: str
    """A verb of the component: `create`, `report`, `drain`."""
    kind: str
    """The kind of resource: `Cluster`, `instance`, `config`."""
    resource_id: str
    request_id: str
    """Empty if no request caused the write."""
    detail: str
    """Further information, such as the given reason or the reporting adapter. Never contents of a spec."""


class AuditWriter(Protocol):
    """The part of a component's transaction that writes the audit."""

    def record(self, entry: AuditEntry) -> None:
        """Write an entry. It takes effect with the rest of the transaction or not at all."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries, newest first. An empty filter selects everything."""

    limit: int
    before: str = ""
    """Return only entries with a smaller id."""
    actor: str = ""
    action: str = ""
    resource_id: str = ""


class AuditLog(Protocol):
    """Reads the audit and deletes old entries. Every call may raise `Unavailable`."""

    async def find(self, query: AuditQuery) -> Sequence[AuditEntry]: ...

    async def expire(self, before: datetime, *, limit: int) -> int:
        """Delete entries older than `before`, oldest first, at most `limit`. Returns how many."""

"""The audit: who has written what, for all components in one place.

An entry is written in the transaction of the write that it is about, so there is neither without the other. SQLite
and PostgreSQL ship, and an audit in memory in `sentinel.testing`; all pass one contract suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.core.access import Role


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One write: who, from where, what, and when."""

    id: str
    """A UUIDv7: entries sort by it in the order of their time."""
    time: datetime
    actor: str
    role: Role
    address: str
    """Of the caller; empty where it is not known."""
    action: str
    """What was done, in the component's own words: `create`, `report`, `drain`."""
    kind: str
    """What it was done to: `Cluster`, `instance`, `config`."""
    resource_id: str
    request_id: str
    """Empty if no request caused it."""
    detail: str
    """What else matters: the reason given, the adapter that reported. Never what a spec contains."""


class AuditWriter(Protocol):
    """The part of a component's transaction that writes the audit."""

    def record(self, entry: AuditEntry) -> None:
        """Takes effect with the rest of the transaction, or not at all."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries, newest first; empty texts select everything."""

    limit: int
    before: str = ""
    """The id of the entry before which to begin."""
    actor: str = ""
    action: str = ""
    resource_id: str = ""


class AuditLog(Protocol):
    """Reads the audit, and forgets it when it is old. Every call may raise `Unavailable`."""

    async def find(self, query: AuditQuery) -> Sequence[AuditEntry]: ...

    async def expire(self, before: datetime, *, limit: int) -> int:
        """Deletes entries that are older than this moment, the oldest first and at most `limit`; says how many."""

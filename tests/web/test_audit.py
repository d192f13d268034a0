"""Audit entries."""

from __future__ import annotations

from datetime import UTC, datetime

from sentinel.core.access import Identity, Role
from sentinel.ports.audit import AuditEntry
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALLER = Caller(Identity("ops", Role.OPERATOR), "127.0.0.1", "req-42")


def test_an_entry_has_actor_action_and_resource() -> None:
    auditor = Auditor(randomness=bytes)

    entry = auditor.entry(
        CALLER, action="drain", kind="instance", resource_id="edge-1", now=NOW, detail="maintenance"
    )

    assert entry == AuditEntry(
        id=entry.id,
        time=NOW,
        actor="ops",
        role=Role.OPERATOR,
        address="127.0.0.1",
        action="drain",
        kind="instance",
        resource_id="edge-1",
        request_id="req-42",
        detail="maintenance",
    )


def test_entries_with_equal_times_sort_in_order_of_creation() -> None:
    auditor = Auditor()

    ids = [
        auditor.entry(CALLER, action="drain", kind="instance", resource_id="edge-1", now=NOW).id for _ in range(99)
    ]

    assert ids == sorted(ids)
    assert len(set(ids)) == 99

"""Optimistic writes: most reports take two statements instead of a locking transaction.

Most reports repeat what is known. They change timestamps in the resource's row, but no label, wait or counter. In
a database behind a network every statement is a round trip, and a transaction needs four: begin, lock, write and
commit. So the work first runs without a transaction. It reads the resource without a lock, and its changes are
written by one statement that takes effect only if the resource still has the version that was read. If it does
not, or if the work needs more than this, nothing was written, and the work runs again in a locking transaction.

Only a resource that is its own root can be written this way: a transaction that holds a family's lock may write
other members of the family without checking their version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sqlalchemy import bindparam

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.drivers.sql import audit
from sentinel.drivers.sql.engine.statements import AutocommitSession, NeedsTransaction, Statement
from sentinel.drivers.sql.fleet import change_log, rows
from sentinel.drivers.sql.fleet.tables import resources
from sentinel.drivers.sql.fleet.transaction import (
    READ,
    changes_status_only,
    status_update,
    status_update_and_change,
)
from sentinel.ports.audit import AuditEntry
from sentinel.ports.change_log import ChangedResource, is_change
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.ports.idempotency import StoredResponse

T = TypeVar("T")

_is_unchanged = (resources.c.id == bindparam("written_id"), resources.c.version == bindparam("read_version"))
_UPDATE_IF_UNCHANGED = Statement(audit.insert_for_each_row_of(status_update(*_is_unchanged)))
_UPDATE_AND_LOG_IF_UNCHANGED = Statement(audit.insert_for_each_row_of(*status_update_and_change(*_is_unchanged)))


class OptimisticTransaction:
    """A `FleetTransaction` for one resource, written once, with one audit entry.

    Every other call raises `NeedsTransaction`.
    """

    def __init__(self, session: AutocommitSession) -> None:
        self._session = session
        self._has_read = False
        self._before: StoredResource | None = None
        self._after: StoredResource | None = None
        self._entry: AuditEntry | None = None
        self.has_changes = False
        """Whether it may have written to the log of changes."""
        self._needs_transaction = False
        """Remembered, because the work may suppress the exception."""

    def perform(self, work: Callable[[FleetTransaction], T]) -> T:
        """Run the work and write its changes. Raises `NeedsTransaction`, or what the work raises."""
        result = work(self)
        self._write()
        return result

    def lock(self, resource_id: str) -> StoredResource | None:
        if self._has_read:
            self._give_up()
        self._has_read = True
        # Before the first statement, so that a waiting task holds no connection.
        self._session.lock_key(resource_id)
        found = self._session.rows(READ, resource_id=resource_id)
        if not found:
            return None
        self._before = rows.to_resource(found[0])
        if self._before.root != resource_id:
            self._give_up()
        return self._before

    def update(self, resource: StoredResource) -> None:
        before = self._before
        if before is None or self._after is not None or not _changes_row_only(before, resource):
            self._give_up()
        self._after = resource

    def record(self, entry: AuditEntry) -> None:
        if self._entry is not None:
            self._give_up()
        self._entry = entry

    def _write(self) -> None:
        before, after, entry = self._before, self._after, self._entry
        if after is None and entry is None and not self._needs_transaction:
            return
        if before is None or after is None or entry is None or self._needs_transaction:
            self._give_up()
        values = rows.status_columns(after) | audit.values(entry)
        values |= {"written_id": after.id, "read_version": before.version}
        statement = _UPDATE_IF_UNCHANGED
        if is_change(before, after):
            self.has_changes = True
            statement = _UPDATE_AND_LOG_IF_UNCHANGED
            resource = ChangedResource(after.id, after.plural, after.parent)
            values |= change_log.values(resource, may_leave=False)
        if not self._session.run(statement, **values):
            self._give_up()

    def _give_up(self) -> NoReturn:
        self._needs_transaction = True
        raise NeedsTransaction

    # --- Calls that need a transaction --------------------------------------------------------------------------

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        self._give_up()

    def count_children(self, resource_id: str) -> int:
        self._give_up()

    def insert(self, resource: StoredResource) -> None:
        self._give_up()

    def remove(self, resource_id: str) -> None:
        self._give_up()

    def record_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self._give_up()

    def record_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self._give_up()

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        self._give_up()

    def remember(self, response: StoredResponse) -> None:
        self._give_up()


def _changes_row_only(before: StoredResource, after: StoredResource) -> bool:
    """Whether only the resource's own row changes, and its version increases."""
    return (
        before.id == after.id
        and before.version < after.version
        and before.is_ready == after.is_ready
        and before.waiting == after.waiting
        and before.attributes == after.attributes
        and changes_status_only(before, after)
    )

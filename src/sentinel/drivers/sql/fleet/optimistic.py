"""A report in two statements, where nobody comes in between.

Most of what is written are reports that say again what is known: their resource gets newer timestamps, and nothing
that it is found or counted by changes. With a database behind a network every statement is a journey, and such a
report would make four: begin, lock, write, commit. So the work is first given this instead of a transaction. It
reads without a lock, and what was written goes out as one statement that takes effect only where the resource is
still at the version that was read. Where it is not, and where the work wants more than that, nothing has
happened, and it is run again in a transaction that locks.

Only for a resource that is a family of its own root: whoever has the family's lock may write its other members
without looking at them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sqlalchemy import bindparam

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.drivers.sql import audit
from sentinel.drivers.sql.engine.statements import AutocommitSession, NeedsTransaction, Statement
from sentinel.drivers.sql.fleet import rows
from sentinel.drivers.sql.fleet.tables import resources
from sentinel.drivers.sql.fleet.transaction import READ, is_described_alike, written
from sentinel.ports.audit import AuditEntry
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.ports.idempotency import StoredResponse

T = TypeVar("T")

_written = written(resources.c.id == bindparam("written_id"), resources.c.version == bindparam("read_version"))
_WRITE_AND_RECORD = Statement(audit.recording_if(_written))


def attempt(session: AutocommitSession, work: Callable[[FleetTransaction], T]) -> T:
    """Runs the work without a transaction. Raises `NeedsTransaction`, or what the work does."""
    tried = _Attempt(session)
    result = work(tried)
    tried.finish()
    return result


class _Attempt:
    """Stands in for a transaction: one resource, written once, with one entry in the audit."""

    def __init__(self, session: AutocommitSession) -> None:
        self._session = session
        self._has_looked = False
        self._before: StoredResource | None = None
        self._after: StoredResource | None = None
        self._entry: AuditEntry | None = None
        self._is_hopeless = False
        """The work needs more than this; also where it keeps that to itself."""

    def lock(self, resource_id: str) -> StoredResource | None:
        if self._has_looked:
            self._give_up()
        self._has_looked = True
        # Before the first statement: a task that waits must not hold a connection.
        self._session.lock_key(resource_id)
        found = self._session.rows(READ, resource_id=resource_id)
        if not found:
            return None
        self._before = rows.stored(found[0])
        if self._before.root != resource_id:
            self._give_up()
        return self._before

    def update(self, resource: StoredResource) -> None:
        before = self._before
        if before is None or self._after is not None or not _is_found_alike(before, resource):
            self._give_up()
        self._after = resource

    def record(self, entry: AuditEntry) -> None:
        if self._entry is not None:
            self._give_up()
        self._entry = entry

    def finish(self) -> None:
        """Writes what is to be written."""
        before, after, entry = self._before, self._after, self._entry
        if after is None and entry is None and not self._is_hopeless:
            return
        if before is None or after is None or entry is None or self._is_hopeless:
            self._give_up()
        values = rows.changing(after) | audit.values(entry)
        values |= {"written_id": after.id, "read_version": before.version}
        if not self._session.run(_WRITE_AND_RECORD, **values):
            self._give_up()

    # --- What takes a transaction -------------------------------------------------------------------------------

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        self._give_up()

    def count_children(self, resource_id: str) -> int:
        self._give_up()

    def insert(self, resource: StoredResource) -> None:
        self._give_up()

    def remove(self, resource_id: str) -> None:
        self._give_up()

    def keep_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self._give_up()

    def keep_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self._give_up()

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        self._give_up()

    def remember(self, response: StoredResponse) -> None:
        self._give_up()

    def _give_up(self) -> NoReturn:
        self._is_hopeless = True
        raise NeedsTransaction


def _is_found_alike(before: StoredResource, after: StoredResource) -> bool:
    """Whether nothing but the resource's own row changes, to a version that tells the two apart."""
    return (
        before.id == after.id
        and before.version < after.version
        and before.is_ready == after.is_ready
        and before.waiting == after.waiting
        and is_described_alike(before, after)
    )

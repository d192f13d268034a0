"""The fleet's locking transaction, with as few statements as possible.

A report locks a resource, updates it and records an audit entry: three statements. Labels, waits and counters are
written only if they differ from what was read.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from sqlalchemy import CTE, ColumnElement, Table, bindparam, delete, func, insert, select, text, update

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import as_integer
from sentinel.drivers.sql import audit
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.statements import Session, SqlValue, Statement
from sentinel.drivers.sql.fleet import change_log, change_statements, rows
from sentinel.drivers.sql.fleet.rows import RESOURCE
from sentinel.drivers.sql.fleet.tables import attributes, discarded, generations, labels, resources, waits
from sentinel.drivers.sql.transaction import SqlTransaction
from sentinel.ports.audit import AuditEntry
from sentinel.ports.change_log import PendingChanges
from sentinel.ports.database import AlreadyExists
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import IdTaken, NameTaken, StoredResource

V = TypeVar("V")

SLOTS = 16
"""The number of rows that a counter is spread over."""

_one = resources.c.id == bindparam("resource_id")
_root = select(resources.c.root).where(_one).scalar_subquery()

LOCK = Statement(RESOURCE.where(resources.c.id == _root).with_for_update())
READ = Statement(RESOURCE.where(_one))
_CHILDREN = Statement(
    RESOURCE.where(resources.c.parent == bindparam("parent")).order_by(resources.c.created_time, resources.c.id)
)
_COUNT_CHILDREN = Statement(
    select(func.count()).select_from(resources).where(resources.c.parent == bindparam("parent"))
)
_INSERT = Statement(insert(resources).inline(), *resources.c.keys())
_STATUS_COLUMNS = ("version", "is_ready", "waiting", "document", "statuses", "attributes")
# SQLite rewrites the index of every column that an update names, changed or not, so reports name only these.
_UPDATE_STATUS = Statement(update(resources).where(_one), *_STATUS_COLUMNS)
_UPDATE_ALL = Statement(update(resources).where(_one), *_STATUS_COLUMNS, "labels", "updated_time", "adapters")
_REMOVE = Statement(delete(resources).where(_one))


def status_update(*where: ColumnElement[bool]) -> CTE:
    """Update the columns that a report changes, as part of another statement; returns the ids of updated rows."""
    values = {column: bindparam(column, type_=resources.c[column].type) for column in _STATUS_COLUMNS}
    return update(resources).where(*where).values(values).returning(resources.c.id).cte("written")


def status_update_and_change(*where: ColumnElement[bool]) -> tuple[CTE, CTE]:
    """The same, and the insertion of a change for each updated row."""
    written = status_update(*where)
    return written, change_statements.insert_for_each_row_of(written)


# The end of nearly every report. One statement saves round trips, where the database allows it.
_UPDATE_AND_RECORD = Statement(audit.insert_with(status_update(_one)))
_UPDATE_LOG_AND_RECORD = Statement(audit.insert_with(*status_update_and_change(_one)))

# As text: both databases understand this syntax, but SQLAlchemy has a separate construct for each.
_COUNT = Statement(
    text(
        "INSERT INTO fleet_counts (plural, is_ready, slot, total) VALUES (:plural, :is_ready, :slot, :total) "
        "ON CONFLICT (plural, is_ready, slot) DO UPDATE SET total = fleet_counts.total + excluded.total"
    )
)

_DISCARD = Statement(insert(discarded).inline(), "resource_id", "received_time", "report")
_surplus = (
    select(discarded.c.id)
    .where(discarded.c.resource_id == bindparam("resource_id"))
    .order_by(discarded.c.id.desc())
    .offset(bindparam("kept"))
)
_DROP_SURPLUS = Statement(delete(discarded).where(discarded.c.id.in_(_surplus)))

_KEEP_GENERATION = Statement(insert(generations).inline(), "resource_id", "time", "is_past", "record")
_END_GENERATION = Statement(
    update(generations).where(generations.c.resource_id == bindparam("of"), generations.c.is_past.is_(False)),
    "is_past",
)


def changes_status_only(before: StoredResource, after: StoredResource) -> bool:
    """Whether the description columns are equal, as after a report."""
    return (
        before.labels == after.labels
        and before.updated_time == after.updated_time
        and before.adapters == after.adapters
    )


class _IndexTable(Generic[V]):
    """A table with a row for each item of a mapping of a resource, such as its labels."""

    def __init__(
        self,
        table: Table,
        key: str,
        *,
        own: Callable[[StoredResource], dict[str, SqlValue]],
        values: Callable[[V], dict[str, SqlValue]],
    ) -> None:
        """`own` returns the columns of the resource that a row copies, `values` those of the value of an item."""
        self._key = key
        self._own = own
        self._values = values
        self._insert = Statement(insert(table).inline(), *table.c.keys())
        self._delete = Statement(
            delete(table).where(table.c.resource_id == bindparam("resource_id"), table.c[key] == bindparam(key))
        )

    def update(
        self, session: Session, resource: StoredResource, before: Mapping[str, V], after: Mapping[str, V]
    ) -> None:
        """Write what differs. The row of a changed value is deleted and inserted."""
        removed = [key for key, value in before.items() if after.get(key) != value]
        added = [(key, value) for key, value in after.items() if before.get(key) != value]
        if removed:
            session.run_many(self._delete, [{"resource_id": resource.id, self._key: key} for key in removed])
        if added:
            own = self._own(resource)
            session.run_many(self._insert, [own | {self._key: key} | self._values(value) for key, value in added])


def _list_columns(resource: StoredResource) -> dict[str, SqlValue]:
    return {
        "resource_id": resource.id,
        "plural": resource.plural,
        "created_time": to_micros(resource.created_time),
    }


_LABELS = _IndexTable[str](
    labels, "key", own=_list_columns, values=lambda value: {"value": value, "number": as_integer(value)}
)
_ATTRIBUTES = _IndexTable[str](attributes, "key", own=_list_columns, values=lambda value: {"value": value})
_WAITS = _IndexTable[datetime](
    waits,
    "adapter",
    own=lambda resource: {"resource_id": resource.id, "plural": resource.plural},
    values=lambda since: {"since": to_micros(since)},
)


class SqlFleetTransaction(SqlTransaction):
    """`ports.fleet_store.FleetTransaction` in a SQL transaction."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {
        "fleet_resources_id": IdTaken,
        "fleet_resources_name": NameTaken,
    }

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._known: dict[str, StoredResource] = {}
        """Resources that this transaction has read or written."""
        self._counts: Counter[tuple[str, bool, int]] = Counter()
        self._changes = PendingChanges()
        self._deferred_update: dict[str, SqlValue] | None = None
        """Written before the next statement, or at the end together with the audit entry."""

    @property
    def has_changes(self) -> bool:
        """Whether readers of the log have something to read after the commit."""
        return bool(self._changes)

    def lock(self, resource_id: str) -> StoredResource | None:
        found = self._rows(LOCK, resource_id=resource_id)
        if not found:
            return None
        root = rows.to_resource(found[0])
        self._known[root.id] = root
        if root.id == resource_id:
            return root
        resource = self._read(resource_id)
        if resource is not None and resource.root != root.id:
            # It was removed and recreated under another parent while we waited, so the wrong family is locked.
            raise Unavailable(f"{resource_id} was just recreated under another parent")
        return resource

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        children = [rows.to_resource(row) for row in self._rows(_CHILDREN, parent=resource_id)]
        self._known |= {child.id: child for child in children}
        return children

    def count_children(self, resource_id: str) -> int:
        return int(self._rows(_COUNT_CHILDREN, parent=resource_id)[0][0])

    def insert(self, resource: StoredResource) -> None:
        self._run(_INSERT, rows.all_columns(resource))
        _LABELS.update(self._session, resource, {}, resource.labels)
        _ATTRIBUTES.update(self._session, resource, {}, resource.attributes)
        _WAITS.update(self._session, resource, {}, resource.waiting)
        self._count(resource, +1)
        self._changes.note(None, resource)
        self._known[resource.id] = resource

    def update(self, resource: StoredResource) -> None:
        before = self._require(resource.id)
        if changes_status_only(before, resource):
            self._write_deferred()
            self._deferred_update = {"resource_id": resource.id, **rows.status_columns(resource)}
        else:
            changed = rows.status_columns(resource) | rows.description_columns(resource)
            self._run(_UPDATE_ALL, {"resource_id": resource.id} | changed)
            _LABELS.update(self._session, before, before.labels, resource.labels)
        _ATTRIBUTES.update(self._session, before, before.attributes, resource.attributes)
        _WAITS.update(self._session, before, before.waiting, resource.waiting)
        if before.is_ready != resource.is_ready:
            self._count(before, -1)
            self._count(resource, +1)
        self._changes.note(before, resource)
        self._known[resource.id] = resource

    def remove(self, resource_id: str) -> None:
        before = self._require(resource_id)
        self._run(_REMOVE, {"resource_id": resource_id})
        self._run(_END_GENERATION, {"of": resource_id, "is_past": True})
        self._count(before, -1)
        self._changes.note(before, None)
        del self._known[resource_id]

    def record_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self._run(
            _DISCARD,
            {
                "resource_id": resource_id,
                "received_time": to_micros(report.received_time),
                "report": rows.encode(report),
            },
        )
        self._run(_DROP_SURPLUS, {"resource_id": resource_id, "kept": limit})

    def record_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self._run(_END_GENERATION, {"of": resource_id, "is_past": True})
        self._run(
            _KEEP_GENERATION,
            {
                "resource_id": resource_id,
                "time": to_micros(record.time),
                "is_past": False,
                "record": rows.encode(record),
            },
        )

    def _before_commit(self) -> None:
        """Write counters last and in a fixed order: all transactions update the same few rows."""
        if self._deferred_update is not None and len(self._entries) == 1 and self._session.can_write_two_tables:
            self._write_with_entry(self._entries[0])
        else:
            self._write_deferred()
            super()._before_commit()
            self._write_changes()
        for (plural, is_ready, slot), change in sorted(self._counts.items()):
            if change:
                self._run(_COUNT, {"plural": plural, "is_ready": is_ready, "slot": slot, "total": change})

    def _write_with_entry(self, entry: AuditEntry) -> None:
        changes = self._change_values()
        values = audit.values(entry) | (self._deferred_update or {})
        self._deferred_update = None
        if len(changes) == 1:
            self._run(_UPDATE_LOG_AND_RECORD, values | changes[0])
        else:
            self._run(_UPDATE_AND_RECORD, values)
            self._write_changes()

    def _write_changes(self) -> None:
        if self._changes:
            self._session.run_many(change_statements.INSERT, self._change_values())

    def _change_values(self) -> list[dict[str, SqlValue]]:
        return [change_log.values(each, may_leave=may_leave) for each, may_leave in self._changes.items()]

    def _read(self, resource_id: str) -> StoredResource | None:
        found = self._rows(READ, resource_id=resource_id)
        if not found:
            return None
        resource = self._known[resource_id] = rows.to_resource(found[0])
        return resource

    def _require(self, resource_id: str) -> StoredResource:
        known = self._known.get(resource_id) or self.lock(resource_id)
        if known is None:
            raise LookupError(f"{resource_id} does not exist")
        return known

    def _count(self, resource: StoredResource, change: int) -> None:
        self._counts[resource.plural, resource.is_ready, zlib.crc32(resource.id.encode()) % SLOTS] += change

    def _write_deferred(self) -> None:
        if self._deferred_update is not None:
            deferred, self._deferred_update = self._deferred_update, None
            self._run(_UPDATE_STATUS, deferred)

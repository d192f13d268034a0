"""What can be done to the fleet in one transaction, in as few statements as it takes.

A report locks a resource, writes it back and leaves an entry in the audit: three statements. What a resource is
found by - labels, waits, the counters - is written only where it differs from what was read.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from sqlalchemy import CTE, ColumnElement, bindparam, delete, func, insert, select, text, update

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import as_integer
from sentinel.drivers.sql import audit
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.statements import Session, Statement, Value
from sentinel.drivers.sql.fleet import rows
from sentinel.drivers.sql.fleet.rows import STORED
from sentinel.drivers.sql.fleet.tables import discarded, generations, labels, resources, waits
from sentinel.drivers.sql.transaction import SqlTransaction
from sentinel.ports.database import AlreadyExists
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import IdTaken, NameTaken, StoredResource

SLOTS = 16
"""Over how many rows a counter is spread."""

_one = resources.c.id == bindparam("resource_id")
_root = select(resources.c.root).where(_one).scalar_subquery()

LOCK = Statement(STORED.where(resources.c.id == _root).with_for_update())
READ = Statement(STORED.where(_one))
_CHILDREN = Statement(
    STORED.where(resources.c.parent == bindparam("parent")).order_by(resources.c.created_time, resources.c.id)
)
_COUNT_CHILDREN = Statement(
    select(func.count()).select_from(resources).where(resources.c.parent == bindparam("parent"))
)
_INSERT = Statement(insert(resources).inline(), *resources.c.keys())
CHANGING = ("version", "is_ready", "waiting", "document", "statuses")
"""What a report may change of a resource."""
# A statement that names an indexed column makes SQLite write its index anew, changed or not.
_UPDATE = Statement(update(resources).where(_one), *CHANGING)
_UPDATE_ALL = Statement(update(resources).where(_one), *CHANGING, "labels", "updated_time", "adapters")
_REMOVE = Statement(delete(resources).where(_one))


def written(*where: ColumnElement[bool]) -> CTE:
    """Writes what a report changes of a resource, as part of another statement; gives its id, if there is one."""
    values = {column: bindparam(column, type_=resources.c[column].type) for column in CHANGING}
    return update(resources).where(*where).values(values).returning(resources.c.id).cte("written")


# The end of nearly every report, in one go where the database can: a round trip less of five.
_UPDATE_AND_RECORD = Statement(audit.recording_with(written(_one)))

_LABEL = Statement(insert(labels).inline(), *labels.c.keys())
_UNLABEL = Statement(
    delete(labels).where(labels.c.resource_id == bindparam("resource_id"), labels.c.key == bindparam("key"))
)
_WAIT = Statement(insert(waits).inline(), *waits.c.keys())
_UNWAIT = Statement(
    delete(waits).where(waits.c.resource_id == bindparam("resource_id"), waits.c.adapter == bindparam("adapter"))
)
# Both databases have these words, SQLAlchemy only one dialect's at a time.
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


def is_described_alike(before: StoredResource, after: StoredResource) -> bool:
    """Whether nothing differs that only its owner changes, or the server's configuration."""
    return (
        before.labels == after.labels
        and before.updated_time == after.updated_time
        and before.adapters == after.adapters
    )


class SqlFleetTransaction(SqlTransaction):
    """What can be done to the fleet."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {
        "fleet_resources_id": IdTaken,
        "fleet_resources_name": NameTaken,
    }

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._known: dict[str, StoredResource] = {}
        """What this transaction has read or written."""
        self._counts: Counter[tuple[str, bool, int]] = Counter()
        self._update: dict[str, Value] | None = None
        """Delayed until another statement is run, or the transaction ends."""

    def lock(self, resource_id: str) -> StoredResource | None:
        found = self._rows(LOCK, resource_id=resource_id)
        if not found:
            return None
        root = rows.stored(found[0])
        self._known[root.id] = root
        if root.id == resource_id:
            return root
        resource = self._read(resource_id)
        if resource is not None and resource.root != root.id:
            # Removed and made anew under another parent while we waited: what is locked is not its family.
            raise Unavailable(f"{resource_id} has just moved to another family")
        return resource

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        children = [rows.stored(row) for row in self._rows(_CHILDREN, parent=resource_id)]
        self._known |= {child.id: child for child in children}
        return children

    def count_children(self, resource_id: str) -> int:
        return int(self._rows(_COUNT_CHILDREN, parent=resource_id)[0][0])

    def insert(self, resource: StoredResource) -> None:
        self._run(_INSERT, rows.lasting(resource) | rows.changing(resource) | rows.described(resource))
        self._index_labels(resource, {}, resource.labels)
        self._index_waits(resource, {}, resource.waiting)
        self._count(resource, +1)
        self._known[resource.id] = resource

    def update(self, resource: StoredResource) -> None:
        before = self._require(resource.id)
        if is_described_alike(before, resource):
            self._write_pending()
            self._update = {"resource_id": resource.id, **rows.changing(resource)}
        else:
            changed = rows.changing(resource) | rows.described(resource)
            self._run(_UPDATE_ALL, {"resource_id": resource.id} | changed)
            self._index_labels(before, before.labels, resource.labels)
        self._index_waits(before, before.waiting, resource.waiting)
        if before.is_ready != resource.is_ready:
            self._count(before, -1)
            self._count(resource, +1)
        self._known[resource.id] = resource

    def remove(self, resource_id: str) -> None:
        before = self._require(resource_id)
        self._run(_REMOVE, {"resource_id": resource_id})
        self._run(_END_GENERATION, {"of": resource_id, "is_past": True})
        self._count(before, -1)
        del self._known[resource_id]

    def keep_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self._run(
            _DISCARD,
            {
                "resource_id": resource_id,
                "received_time": to_micros(report.received_time),
                "report": rows.encode_report(report),
            },
        )
        self._run(_DROP_SURPLUS, {"resource_id": resource_id, "kept": limit})

    def keep_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self._run(_END_GENERATION, {"of": resource_id, "is_past": True})
        self._run(
            _KEEP_GENERATION,
            {
                "resource_id": resource_id,
                "time": to_micros(record.time),
                "is_past": False,
                "record": rows.encode_generation(record),
            },
        )

    def _write_last(self) -> None:
        """The counters come last, and in one order for all: every transaction wants the same few rows."""
        if self._update is not None and len(self._entries) == 1 and self._session.combines:
            last, self._update = self._update, None
            self._run(_UPDATE_AND_RECORD, audit.values(self._entries[0]) | last)
        else:
            self._write_pending()
            super()._write_last()
        for (plural, is_ready, slot), change in sorted(self._counts.items()):
            if change:
                self._run(_COUNT, {"plural": plural, "is_ready": is_ready, "slot": slot, "total": change})

    def _read(self, resource_id: str) -> StoredResource | None:
        found = self._rows(READ, resource_id=resource_id)
        if not found:
            return None
        resource = self._known[resource_id] = rows.stored(found[0])
        return resource

    def _require(self, resource_id: str) -> StoredResource:
        known = self._known.get(resource_id) or self.lock(resource_id)
        if known is None:
            raise LookupError(f"{resource_id}: changed, and is not there")
        return known

    def _index_labels(self, resource: StoredResource, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        gone = [key for key, value in before.items() if after.get(key) != value]
        new = [(key, value) for key, value in after.items() if before.get(key) != value]
        if gone:
            self._session.run_many(_UNLABEL, [{"resource_id": resource.id, "key": key} for key in gone])
        if new:
            own: dict[str, Value] = {
                "resource_id": resource.id,
                "plural": resource.plural,
                "created_time": to_micros(resource.created_time),
            }
            self._session.run_many(
                _LABEL, [own | {"key": key, "value": value, "number": as_integer(value)} for key, value in new]
            )

    def _index_waits(
        self, resource: StoredResource, before: Mapping[str, datetime], after: Mapping[str, datetime]
    ) -> None:
        gone = [adapter for adapter, since in before.items() if after.get(adapter) != since]
        new = [(adapter, since) for adapter, since in after.items() if before.get(adapter) != since]
        if gone:
            self._session.run_many(_UNWAIT, [{"resource_id": resource.id, "adapter": each} for each in gone])
        if new:
            own: dict[str, Value] = {"resource_id": resource.id, "plural": resource.plural}
            self._session.run_many(
                _WAIT, [own | {"adapter": adapter, "since": to_micros(since)} for adapter, since in new]
            )

    def _count(self, resource: StoredResource, change: int) -> None:
        self._counts[resource.plural, resource.is_ready, zlib.crc32(resource.id.encode()) % SLOTS] += change

    def _write_pending(self) -> None:
        if self._update is not None:
            last, self._update = self._update, None
            self._run(_UPDATE, last)

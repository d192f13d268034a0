"""Who owns which field: `metadata.managedFields`, and what a write does to it.

An update or patch takes what it changes from all other managers. An apply owns exactly what it contains, shares a
field whose value it does not change, and conflicts with the owners of a field that it does change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.core.times import timestamp
from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube import field_sets
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_sets import NO_FIELDS, FieldSet, Path, as_text, fields_of, with_named_parents
from sentinel.testing.kube.field_types import FieldType
from sentinel.testing.kube.merging import compare, merge, remove

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10
"""More than these entries of updates are combined into one of `ancient-changes`."""

_NEVER_OWNED: FieldSet = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class Manager(NamedTuple):
    """The identity of an entry."""

    name: str
    operation: str
    subresource: str = ""
    api_version: str = ""
    """Empty for an apply, which has one entry, whatever versions it uses."""

    def __str__(self) -> str:
        """Return the manager as messages name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class Entry(msgspec.Struct, frozen=True):
    """What a manager owns."""

    fields: FieldSet
    api_version: str
    time: str = ""
    """The time of the last change by this manager. Empty if it only applied values that were there."""


Managed: TypeAlias = dict[Manager, Entry]


class Writer(msgspec.Struct, frozen=True):
    """Who writes, when and where."""

    manager: str
    """From the parameter `fieldManager`, or the first part of the user agent."""
    api_version: str
    now: datetime
    subresource: str = ""
    ignored: FieldSet = NO_FIELDS
    """Fields that the endpoint does not write, such as `status` on the main one."""

    @property
    def time(self) -> str:
        """The time of the write, to the second."""
        return timestamp(self.now.astimezone(UTC).replace(microsecond=0))


def read(metadata: Mapping[str, Json]) -> Managed:
    """Return the entries of an object. Those that are not valid are left out."""
    entries = metadata.get("managedFields")
    managed: Managed = {}
    for entry in entries if isinstance(entries, list) else ():
        fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(fields, dict):
            continue
        operation, api_version = str(entry.get("operation")), str(entry.get("apiVersion"))
        manager = Manager(
            str(entry.get("manager", "")),
            operation,
            str(entry.get("subresource", "")),
            "" if operation == APPLY else api_version,
        )
        managed[manager] = Entry(field_sets.decode(fields), api_version, str(entry.get("time", "")))
    return managed


def write(managed: Managed) -> list[Json]:
    """Return the entries in the order of the API server: by operation first, then by time."""
    entries: list[Json] = []
    order = sorted(
        managed.items(),
        key=lambda item: (item[0].operation, item[1].time, item[0].name, item[1].api_version, item[0].subresource),
    )
    for manager, entry in order:
        written: KubeObject = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": entry.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": field_sets.encode(entry.fields),
        }
        if entry.time:
            written["time"] = entry.time
        if manager.subresource:
            written["subresource"] = manager.subresource
        entries.append(written)
    return entries


def update(kind: FieldType, live: KubeObject, new: KubeObject, managed: Managed, writer: Writer) -> Managed:
    """Return the owners after an update from `live` to `new`, both without `managedFields`."""
    changes = compare(kind, live, new).without(writer.ignored)
    taken = changes.modified | changes.added
    kept = _without(managed, taken | changes.removed)
    own = taken - _NEVER_OWNED
    if own:
        manager = Manager(writer.manager, UPDATE, writer.subresource, writer.api_version)
        before = kept[manager].fields if manager in kept else NO_FIELDS
        kept[manager] = Entry(before | own, writer.api_version, writer.time)
    return _with_few_updaters(kept)


def apply(
    kind: FieldType,
    live: KubeObject,
    applied: KubeObject,
    managed: Managed,
    writer: Writer,
    *,
    is_forced: bool,
) -> tuple[KubeObject, Managed]:
    """Return the object and its owners after an apply. Raises `ApiError` with every conflict."""
    manager = Manager(writer.manager, APPLY, writer.subresource)
    own = frozenset(fields_of(kind, applied))
    own -= field_sets.below(own, writer.ignored)
    last = managed[manager].fields if manager in managed else NO_FIELDS
    owners: Managed = {**managed, manager: Entry(own, writer.api_version, "")}

    merged = merge(kind, live, applied)
    pruned = _pruned(kind, merged, owners, last) if last else merged
    new: KubeObject = pruned if isinstance(pruned, dict) else {}

    changes = compare(kind, live, new).without(writer.ignored)
    taken = changes.modified | changes.added
    others = {key: entry for key, entry in owners.items() if key != manager}
    conflicts = {key: entry.fields & taken for key, entry in others.items() if entry.fields & taken}
    if conflicts and not is_forced:
        raise ApiError.apply_conflict(_causes(conflicts))
    kept = _without(others, taken | changes.removed)
    if own - _NEVER_OWNED:
        # An apply that changes no value keeps the time of its entry, and a new entry then has none.
        before = managed[manager].time if manager in managed else ""
        time = before if canonical(live) == canonical(new) else writer.time
        kept[manager] = Entry(own - _NEVER_OWNED, writer.api_version, time)
    return new, kept


def _pruned(kind: FieldType, merged: Json, owners: Managed, last: FieldSet) -> Json:
    """Remove what the manager applied before, unless anybody owns it now."""
    last_named = with_named_parents(kind, last)
    without_last = remove(kind, merged, last_named)

    owned = NO_FIELDS.union(*(entry.fields for entry in owners.values()))
    all_fields = with_named_parents(kind, fields_of(kind, merged))
    left = with_named_parents(kind, fields_of(kind, without_last))
    pruned = remove(kind, merged, all_fields - (left | with_named_parents(kind, owned)))

    # An object whose last owned member goes is removed only if the manager owned all that was in it.
    left = with_named_parents(kind, fields_of(kind, pruned))
    return remove(kind, merged, (all_fields - left) & last_named)


def _causes(conflicts: Mapping[Manager, FieldSet]) -> list[Cause]:
    return [
        Cause(as_text(path), f"conflict with {manager}", "FieldManagerConflict")
        for manager in sorted(conflicts)
        for path in sorted(conflicts[manager], key=_report_order)
    ]


def _report_order(path: Path) -> list[tuple[bool, str]]:
    """Order fields as Kubernetes does: those of an object before those of the objects in it."""
    return [(depth < len(path), element) for depth, element in enumerate(path, start=1)]


def _without(managed: Managed, fields: FieldSet) -> Managed:
    """Return the entries without these fields. Those that own nothing more are dropped."""
    kept = {
        manager: msgspec.structs.replace(entry, fields=entry.fields - fields) for manager, entry in managed.items()
    }
    return {manager: entry for manager, entry in kept.items() if entry.fields}


def _with_few_updaters(managed: Managed) -> Managed:
    updaters = sorted(
        (manager for manager in managed if manager.operation == UPDATE),
        key=lambda manager: (managed[manager].time, manager),
    )
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return managed
    few = dict(managed)
    for version, oldest in _by_version(updaters[: excess + 1]).items():
        if len(oldest) < 2:
            continue
        entries = [few.pop(manager) for manager in oldest]
        fields = NO_FIELDS.union(*(entry.fields for entry in entries))
        few[Manager("ancient-changes", UPDATE, "", version)] = Entry(fields, version, entries[-1].time)
    return few


def _by_version(managers: Iterable[Manager]) -> dict[str, list[Manager]]:
    versions: dict[str, list[Manager]] = {}
    for manager in managers:
        versions.setdefault(manager.api_version, []).append(manager)
    return versions

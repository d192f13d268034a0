"""Who holds which fields of an object, and who wrote between two versions, as `metadata.managedFields` say.

The API server keeps an entry for each manager, operation and subresource, in no useful order and with times of
one second. An entry lists fields, not values. An `Update` takes the fields that it changes from everyone else; an
`Apply` may share a field with others as long as all want the same value. So those who hold a field after it
changed want the new value, whatever the times say.

An entry proves a write if it is new, if its time moved, or if it holds more than before. It proves nothing if it
only holds less: then another manager took its fields, or removed them, which leaves no trace. A map or list that
lost its last field may stay in an entry, empty: that is less, too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from sentinel.core.drift import object_fields, paths
from sentinel.core.drift.judgement import UNKNOWN_ACTOR, Actor
from sentinel.core.drift.keyed_lists import ListKeys
from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.core.times import utc_or_none

_STATUS_SUBRESOURCE: Final = "status"


class ManagedEntry(msgspec.Struct, frozen=True):
    """One entry of `managedFields`."""

    manager: str
    operation: str
    """`Apply` or `Update`; empty if the entry does not say."""
    subresource: str
    """Such as `status` or `scale`; empty for the object itself."""
    api_version: str
    time: str
    """The time as written; empty if the entry has none.

    It is only compared, so an unknown format is no problem.
    """
    fields: frozenset[str]
    """The paths that it holds."""
    inner: frozenset[str]
    """The paths above them. A path that is held but is not here is held as a whole."""
    folded: Mapping[str, int] = {}
    """How many fields it holds in each map that is kept as one value. Only the map is in `fields`."""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Tells an entry from the others of the object."""
        return self.manager, self.operation, self.subresource, self.api_version

    def is_of(self, managers: frozenset[str]) -> bool:
        """Whether it belongs to one of the managers, which are written as in `Rules.managers`."""
        operation = f"{self.manager}/{self.operation}"
        return not managers.isdisjoint((self.manager, operation, f"{operation}/{self.subresource}"))

    def count(self, path: str) -> int:
        """Return how many fields it holds in a map."""
        folded = self.folded.get(path)
        return sum(paths.is_below(each, path) for each in self.fields) if folded is None else folded

    @property
    def is_about_status(self) -> bool:
        """Whether its writes change only the status."""
        return self.subresource == _STATUS_SUBRESOURCE or all(
            path == paths.STATUS or paths.is_below(path, paths.STATUS) for path in self.fields
        )


class ManagedFields(msgspec.Struct, frozen=True):
    """All entries of an object that can be read."""

    entries: tuple[ManagedEntry, ...]
    lists: Mapping[str, ListKeys]
    """The lists that the entries show to be keyed, by path."""


class FieldHolders:
    """Answers who holds a field of one version of an object."""

    def __init__(self, entries: Iterable[ManagedEntry], managers: frozenset[str]) -> None:
        self._operators = [entry for entry in entries if entry.is_of(managers)]
        self._others = [entry for entry in entries if not entry.is_of(managers)]
        self.operator: frozenset[str] = frozenset().union(*(entry.fields for entry in self._operators))
        """The paths that the operator's entries name."""
        self._inner: frozenset[str] = frozenset().union(*(entry.inner for entry in entries))

    @property
    def is_empty(self) -> bool:
        """Whether there are no entries. A client that removes them all makes the API server record none."""
        return not self._operators and not self._others

    def has_operator(self, path: str) -> bool:
        """Whether the operator holds a field."""
        return any(self._holds(entry, path) for entry in self._operators)

    def operators(self, path: str) -> list[ManagedEntry]:
        return [entry for entry in self._operators if self._holds(entry, path)]

    def others(self, path: str) -> list[ManagedEntry]:
        """Return the entries of other managers that hold a field."""
        return [entry for entry in self._others if self._holds(entry, path)]

    def has_parts(self, path: str) -> bool:
        """Whether any manager holds something inside of a map or list."""
        return path in self._inner

    def is_atomic(self, path: str) -> bool:
        """Whether managers only ever hold a map or list as a whole."""
        return self._is_whole(path) and any(path in entry.fields for entry in (*self._operators, *self._others))

    def covers(self, held: frozenset[str], path: str) -> bool:
        """Whether a set of paths contains a field, by itself or as part of something that is held as a whole."""
        return path in held or any(above in held and self._is_whole(above) for above in paths.ancestors(path))

    def _is_whole(self, path: str) -> bool:
        return path not in self._inner and object_fields.may_be_atomic(path)

    def _holds(self, entry: ManagedEntry, path: str) -> bool:
        return self.covers(entry.fields, path)


class Writers:
    """The entries that prove a write between two versions of an object."""

    def __init__(
        self, before: Iterable[ManagedEntry], after: Iterable[ManagedEntry], managers: frozenset[str]
    ) -> None:
        earlier = {entry.identity: entry for entry in before}
        self.all = [entry for entry in after if _has_written(entry, earlier.get(entry.identity))]
        writers = [entry for entry in self.all if not entry.is_about_status]
        self.operator = [entry for entry in writers if entry.is_of(managers)]
        self.others = [entry for entry in writers if not entry.is_of(managers)]

    def latest(self, entries: Sequence[ManagedEntry]) -> ManagedEntry | None:
        """Return the entry that wrote last, as far as entries tell; None if there is none."""
        return latest([entry for entry in entries if entry in self.all] or entries)

    @property
    def only_other(self) -> ManagedEntry | None:
        """The only other manager that wrote, if there is exactly one. Then it also did what left no trace."""
        return self.others[0] if len(self.others) == 1 else None


def read(metadata: Mapping[str, Json], *, folded: frozenset[str] = frozenset()) -> ManagedFields:
    """Read `managedFields`. What is malformed is left out, so that one bad entry does not hide the others.

    Of the fields in the maps `folded`, only the number is kept.
    """
    written = metadata.get("managedFields")
    lists: dict[str, ListKeys] = {}
    entries = []
    for entry in written if isinstance(written, list) else ():
        manager = entry.get("manager") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(manager, str):
            continue
        counts: dict[str, int] = {}
        fields, inner = _read_fields(entry.get("fieldsV1"), lists, folded, counts)
        entries.append(
            ManagedEntry(
                manager=manager,
                operation=_text(entry, "operation"),
                subresource=_text(entry, "subresource"),
                api_version=_text(entry, "apiVersion"),
                time=_text(entry, "time"),
                fields=fields,
                inner=inner,
                folded=counts,
            )
        )
    return ManagedFields(tuple(entries), lists)


class _Names:
    """The fields of a map in a tree of `fieldsV1`, which is not copied."""

    def __init__(self, tree: Json) -> None:
        self._tree = tree if isinstance(tree, dict) else {}

    def __contains__(self, name: object) -> bool:
        return f"f:{name}" in self._tree


def held_names(
    metadata: Mapping[str, Json], entry: ManagedEntry, folded: Iterable[str]
) -> Mapping[str, Container[str]]:
    """Return the names of the fields that an entry holds in each map whose fields were not kept."""
    written = metadata.get("managedFields")
    trees = [
        each.get("fieldsV1")
        for each in (written if isinstance(written, list) else [])
        if isinstance(each, dict) and entry in read({"managedFields": [each]}, folded=frozenset(folded)).entries
    ]
    return {path: _Names(tree.get(f"f:{path[1:]}")) for tree in trees if isinstance(tree, dict) for path in folded}


def latest(entries: Sequence[ManagedEntry]) -> ManagedEntry | None:
    """Return the entry with the latest time; None if there is none."""
    return max(entries, key=lambda entry: (entry.time, entry.identity), default=None)


def actor(entry: ManagedEntry | None) -> Actor:
    """Return who an entry names."""
    if entry is None:
        return UNKNOWN_ACTOR
    return Actor(
        manager=entry.manager,
        operation=entry.operation or None,
        time=_time(entry.time),
        subresource=entry.subresource or None,
    )


def _text(entry: Mapping[str, Json], field: str) -> str:
    value = entry.get(field)
    return value if isinstance(value, str) else ""


def _read_fields(
    tree: Json, lists: dict[str, ListKeys], folded: frozenset[str], counts: dict[str, int]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the paths in a tree of `fieldsV1`, and those above them. Adds to `lists` and `counts`."""
    fields: set[str] = set()
    inner: set[str] = set()
    pending: list[tuple[str, Json]] = [("", tree)] if isinstance(tree, dict) else []
    while pending:  # not recursive: the depth is the writer's choice
        path, node = pending.pop()
        if path in folded:
            count = sum(name != "." for name in node) if isinstance(node, dict) else 0
            if count:
                counts[path] = count
                fields.add(path)
            continue
        if not isinstance(node, dict) or not node:
            fields.add(path)
            continue
        for name, below in node.items():
            if name == ".":
                fields.add(path)
                continue
            step = _step(path, name, lists)
            if step is not None:
                inner.add(path)
                pending.append((step, below))
    return frozenset(fields - {""}), frozenset(inner)


def _step(path: str, name: str, lists: dict[str, ListKeys]) -> str | None:
    """Return the path that a key of `fieldsV1` stands for, or None if it cannot be read."""
    match name[:2]:
        case "f:":
            return paths.child(path, name[2:])
        case "k:":
            key = _decode(name[2:])
            if not isinstance(key, dict) or not key:
                return None
            lists.setdefault(path, tuple(sorted(key)))
            return paths.member(path, key)
        case "v:":
            value = _decode(name[2:])
            if isinstance(value, dict | list):
                return None
            lists.setdefault(path, ())
            return paths.child(path, paths.text(value))
        case "i:":
            return paths.child(path, name[2:])
        case _:
            return None


def _decode(text: str) -> Json:
    try:
        return msgspec.json.decode(text)  # type: ignore[no-any-return]
    except (*DECODE_ERRORS, UnicodeEncodeError):
        return []


def _has_written(entry: ManagedEntry, earlier: ManagedEntry | None) -> bool:
    if earlier is None:
        return bool(entry.fields)
    holds_more = not entry.fields <= earlier.fields | earlier.inner or any(
        count > earlier.count(path) for path, count in entry.folded.items()
    )
    return (entry.time != "" and entry.time != earlier.time) or holds_more


def _time(text: str) -> datetime | None:
    try:
        return utc_or_none(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        return None

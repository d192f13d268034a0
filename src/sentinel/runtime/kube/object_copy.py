"""The local copy of a reflector: what is kept of each object, and which changes its handler has to know.

An object counts as changed if its resource version differs. An object with another uid is another object, even if
it has the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from sentinel.core.json import Malformed
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.ports.kube import KubeObject
from sentinel.runtime.kube.changes import Added, Change, Deleted, Modified
from sentinel.runtime.log import Log

T = TypeVar("T")


class _Entry(msgspec.Struct, Generic[T], frozen=True):
    uid: str
    resource_version: str
    kept: T


class ObjectCopy(Generic[T]):
    """What is kept of the objects of one kind."""

    def __init__(self, *, keep: Callable[[KubeObject], T], handler: Callable[[Change[T]], None], log: Log) -> None:
        self._keep = keep
        self._handler = handler
        self._log = log
        self._entries: dict[ObjectKey, _Entry[T]] = {}
        self._unlisted: dict[ObjectKey, None] = {}
        """The objects that the current list has not shown yet. A dict, because the order of a set is random."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: ObjectKey) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.kept

    def items(self) -> dict[ObjectKey, T]:
        return {key: entry.kept for key, entry in self._entries.items()}

    def begin_list(self) -> None:
        """Begin to compare with a complete list: call `update` for each of its objects, then `end_list`."""
        self._unlisted = dict.fromkeys(self._entries)

    def end_list(self) -> None:
        """Remove all objects that were not in the list."""
        for key in self._unlisted:
            self._remove(key, None)
        self._unlisted = {}

    def update(self, kube_object: KubeObject) -> bool:
        """Take over the current state of an object. Returns whether that is new."""
        key = self._read_key(kube_object)
        if key is None:
            return False
        self._unlisted.pop(key, None)
        try:
            uid, version = objects.uid(kube_object), objects.resource_version(kube_object)
            before = self._entries.get(key)
            if before is not None and before.uid != uid:
                self._remove(key, None)
                before = None
            if before is not None and before.resource_version == version:
                return False
            kept = self._keep(kube_object)
        except Exception as error:  # one object that cannot be read must not hide the others
            self._log.exception("reflector.unreadable", key=str(key), error=error)
            return False
        self._entries[key] = _Entry(uid, version, kept)
        if before is None:
            self._tell(Added(key, kept, kube_object))
        else:
            self._tell(Modified(key, before.kept, kept, kube_object))
        return True

    def remove(self, kube_object: KubeObject) -> bool:
        """Remove an object, given its last state. Returns whether it was there."""
        key = self._read_key(kube_object)
        return key is not None and self._remove(key, kube_object)

    def _remove(self, key: ObjectKey, kube_object: KubeObject | None) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._tell(Deleted(key, entry.kept, kube_object))
        return True

    def _read_key(self, kube_object: KubeObject) -> ObjectKey | None:
        try:
            return objects.key(kube_object)
        except Malformed as error:
            self._log.error("reflector.malformed", error=error)
            return None

    def _tell(self, change: Change[T]) -> None:
        try:
            self._handler(change)
        except Exception as error:  # a bug in the handler must not stop the reflector
            self._log.exception("reflector.handler_failed", key=str(change.key), error=error)

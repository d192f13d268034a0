"""Objects in memory with their history: what etcd is to the API server.

Every write has a version from one counter. Lists can be read as of an earlier version, and changes are kept in
order, so that a watch can begin at any version that has not expired. Stored objects are never changed in place.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.objects import metadata_of, name_of, namespace_of

WATCH_EXPIRED = "The resourceVersion for the provided watch is too old."
LIST_EXPIRED = "The resourceVersion for the provided list is too old."


class Key(NamedTuple):
    """The identity of an object among those of its resource. Lists are in this order."""

    namespace: str
    name: str


class Change(NamedTuple):
    """One write."""

    version: int
    key: Key
    before: KubeObject | None
    after: KubeObject | None
    """None if the object was deleted."""


class ObjectStore:
    """The objects of all resources."""

    def __init__(self, *, max_history: int) -> None:
        self.version = 1
        """The version of the last write."""
        self._max_history = max_history
        self._objects: dict[str, dict[Key, KubeObject]] = {}
        self._changes: dict[str, list[Change]] = {}
        self._dropped_before: dict[str, int] = {}
        self._expired_before = 0
        self._subscribers: set[asyncio.Event] = set()

    def get(self, resource: str, key: Key) -> KubeObject | None:
        """Return the current object, or None."""
        return self._objects.get(resource, {}).get(key)

    def objects(self, resource: str, *, at: int | None = None) -> list[KubeObject]:
        """Return all objects in order, as of a version. Raises `ApiError` if that has expired."""
        current = self._objects.get(resource, {})
        if at is not None:
            if at < self._expiry(resource):
                raise ApiError.expired(LIST_EXPIRED)
            current = self._as_of(resource, at)
        return [current[key] for key in sorted(current)]

    def put(self, resource: str, body: KubeObject) -> KubeObject:
        """Store an object under a new version, and return it."""
        self.version += 1
        stored = self._with_version(body)
        self._record(resource, Key(namespace_of(body), name_of(body)), stored)
        return stored

    def delete(self, resource: str, key: Key) -> KubeObject:
        """Remove an object, and return its last state with the version of its deletion."""
        last = self._objects[resource][key]
        self.version += 1
        self._record(resource, key, None)
        return self._with_version(last)

    def changes_after(self, resource: str, version: int) -> list[Change]:
        """Return the changes of a resource since a version.

        Raises `ApiError` if they are not kept any more. Versions that `expire` expired still are, so that open
        watches can go on.
        """
        if version < self._dropped_before.get(resource, 0) - 1:
            raise ApiError.expired(WATCH_EXPIRED)
        changes = self._changes.get(resource, [])
        return changes[bisect_right(changes, version, key=lambda change: change.version) :]

    def check_watch(self, resource: str, version: int) -> None:
        """Raise `ApiError` if a watch cannot begin after this version."""
        # As in etcd: a compaction keeps the state at its version, so the change to that is still known.
        if version < self._expiry(resource) - 1:
            raise ApiError.expired(WATCH_EXPIRED)

    def expire(self) -> None:
        """Forget the history. Open watches are not affected."""
        self._expired_before = self.version

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set after each write."""
        changed = asyncio.Event()
        self._subscribers.add(changed)
        try:
            yield changed
        finally:
            self._subscribers.discard(changed)

    def _record(self, resource: str, key: Key, after: KubeObject | None) -> None:
        objects = self._objects.setdefault(resource, {})
        changes = self._changes.setdefault(resource, [])
        changes.append(Change(self.version, key, objects.get(key), after))
        if after is None:
            del objects[key]
        else:
            objects[key] = after
        if len(changes) > 2 * self._max_history:
            self._dropped_before[resource] = changes[-self._max_history - 1].version + 1
            del changes[: -self._max_history]
        for changed in self._subscribers:
            changed.set()

    def _expiry(self, resource: str) -> int:
        return max(self._expired_before, self._dropped_before.get(resource, 0))

    def _as_of(self, resource: str, version: int) -> dict[Key, KubeObject]:
        objects = dict(self._objects.get(resource, {}))
        for change in reversed(self.changes_after(resource, version)):
            if change.before is None:
                del objects[change.key]
            else:
                objects[change.key] = change.before
        return objects

    def _with_version(self, body: KubeObject) -> KubeObject:
        return {**body, "metadata": {**metadata_of(body), "resourceVersion": str(self.version)}}

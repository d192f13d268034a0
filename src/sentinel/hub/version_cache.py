"""Remembers versions that many agents fetch at the same time.

A version never changes. Its hash is part of the key, because a deleted configuration may be followed by another of
the same name.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from typing import Final, TypeAlias

from sentinel.core.hub.sync import Assignment
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import ConfigVersion, HubStore
from sentinel.runtime.key_locks import KeyLocks

MAX_CHARACTERS: Final = 16 * 1024 * 1024
_READ_TIMEOUT: Final = timedelta(seconds=10)

_Key: TypeAlias = "tuple[VersionName, str]"


class VersionCache:
    """The versions that were fetched last."""

    def __init__(self, store: HubStore, *, max_characters: int = MAX_CHARACTERS) -> None:
        self._store = store
        self._max_characters = max_characters
        self._versions: OrderedDict[_Key, ConfigVersion] = OrderedDict()
        self._characters = 0
        self._reading = KeyLocks(timeout=_READ_TIMEOUT)

    async def assigned(self, assignment: Assignment) -> ConfigVersion | None:
        """Return an assigned version; None if it was deleted. Raises `Unavailable`."""
        key = (assignment.version, assignment.hash)
        found = self._versions.get(key)
        if found is None:
            # One reads, the others wait for it.
            lock = await self._reading.acquire(f"{assignment.version} {assignment.hash}")
            try:
                found = self._versions.get(key) or await self._read(key)
            finally:
                lock.release()
        elif len(self._versions) > 1:
            self._versions.move_to_end(key)
        return found

    async def _read(self, key: _Key) -> ConfigVersion | None:
        name, expected_hash = key
        found = await self._store.version(name)
        if found is None or found.hash != expected_hash:
            return None
        self._versions[key] = found
        self._characters += len(found.content)
        while self._characters > self._max_characters and len(self._versions) > 1:
            _, oldest = self._versions.popitem(last=False)
            self._characters -= len(oldest.content)
        return found

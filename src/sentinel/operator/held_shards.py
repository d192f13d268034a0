"""Which SentinelConfig watches which shard in this process: at most one at a time.

SentinelConfigs are reconciled side by side. One that changes to a shard takes it before its pulse starts, and
keeps its old shard until the old pulse has ended. If another one still holds the shard, it waits and is woken when
the shard is free.

Two that exchange their shards would wait for each other forever, and so would more in a circle. So the last one to
wait stops its pulse and releases its shard.
"""

from __future__ import annotations

from collections.abc import Callable

from sentinel.core.kube.objects import ObjectKey
from sentinel.pulse.definition import ShardKey


class HeldShards:
    """The holder of each shard, and who waits for which. No method waits, so that a check and what follows from it
    are one step."""

    def __init__(self, *, wake: Callable[[ObjectKey], None]) -> None:
        """`wake` is called with each SentinelConfig that waits for a shard that has become free."""
        self._wake = wake
        self._holders: dict[ShardKey, ObjectKey] = {}
        self._waiting: dict[ObjectKey, ShardKey] = {}

    def take(self, shard: ShardKey, key: ObjectKey) -> ObjectKey | None:
        """Take a shard for a SentinelConfig, beside those that it holds. If another one holds it, wait for it and
        return the holder."""
        holder = self._holders.setdefault(shard, key)
        if holder == key:
            self._waiting.pop(key, None)
            return None
        self._waiting[key] = shard
        return holder

    def is_deadlocked(self, key: ObjectKey) -> bool:
        """Whether a SentinelConfig waits for one that waits for it in turn, directly or through others."""
        passed: set[ObjectKey] = set()
        current = key
        while current not in passed and current in self._waiting:
            passed.add(current)
            holder = self._holders.get(self._waiting[current])
            if holder is None:
                return False
            current = holder
        return current == key and bool(passed)

    def wake_waiting(self, key: ObjectKey) -> None:
        """Wake those that wait for a shard of a SentinelConfig that will not leave it."""
        for waiting in [each for each, wanted in self._waiting.items() if self._holders.get(wanted) == key]:
            self._wake(waiting)

    def stop_waiting(self, key: ObjectKey) -> None:
        """Forget that a SentinelConfig waits. It may want another shard now, or none."""
        self._waiting.pop(key, None)

    def release(self, key: ObjectKey, *, kept: ShardKey | None = None) -> None:
        """Release the shards of a SentinelConfig, except the one that its pulse watches."""
        for shard in [each for each, holder in self._holders.items() if holder == key and each != kept]:
            del self._holders[shard]
            for waiting in [each for each, wanted in self._waiting.items() if wanted == shard]:
                self._wake(waiting)

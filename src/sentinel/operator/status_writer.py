"""Writes the status of SentinelConfigs, at transitions and otherwise at most every 30 seconds.

A status that another client has overwritten is restored: the watch delivers the object, and its status is compared
with the one that was written last. The watch may be late, so an old status counts only if it is still there when
the next write is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.core.operator.status import WRITE_INTERVAL, ConfigStatus, write_delay
from sentinel.operator.managed_config import ManagedConfig
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeError, KubeObject, KubeUnavailable, ObjectNotFound
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.workqueue import Again, Completed, RunResult, WorkQueue

FIELD_MANAGER: Final = "hyperfleet-sentinel"

_RETRY: Final = timedelta(seconds=5)


class StatusWriter:
    """Keeps the status in the API server up to date. Only the leader of a SentinelConfig writes."""

    def __init__(
        self,
        api: KubeApi,
        *,
        managed: Callable[[ObjectKey], ManagedConfig | None],
        stored: Callable[[ObjectKey], KubeObject | None],
        interval: timedelta = WRITE_INTERVAL,
        clock: Clock,
        log: Log,
    ) -> None:
        """`stored` returns an object as the API server has it, as far as that is known here. Between two writes of
        a status whose conditions do not turn, `interval` passes."""
        self._api = api
        self._managed = managed
        self._stored = stored
        self._interval = interval
        self._clock = clock
        self._log = log
        self._queue = WorkQueue[ObjectKey, None](clock=clock, log=log)
        self._written: dict[ObjectKey, tuple[str, ConfigStatus, datetime]] = {}
        """The uid of the object, what was last written of it, and when."""

    def add(self, key: ObjectKey) -> None:
        """Look at the status of a SentinelConfig, which may have changed, here or in the API server."""
        self._queue.add(key)

    async def run(self, stopping: Stopping) -> None:
        """Write until stopped."""
        await self._queue.run(self._write, stopping)

    async def _write(self, key: ObjectKey, _: Sequence[None]) -> RunResult:
        managed = self._managed(key)
        if managed is None or not managed.may_publish:
            # Another process may write meanwhile, so that ours is no longer what the API server has.
            self._written.pop(key, None)
            return Completed()
        status, now = managed.status, self._clock.now()
        uid, written, written_at = self._written.get(key, ("", None, now))
        if uid != managed.reference.uid:
            written = None
        delay = write_delay(
            status,
            written=written,
            written_at=written_at,
            now=now,
            is_overwritten=written is not None and self._is_overwritten(key, uid, written),
            interval=self._interval,
        )
        if delay is None:
            return Completed()
        if delay:
            return Again(delay)
        try:
            await self._api.merge_patch(
                SENTINEL_CONFIG,
                key.name,
                # With the uid, so that an object that was deleted and created again is not written to.
                {"metadata": {"uid": managed.reference.uid}, "status": status.merge_patch()},
                namespace=key.namespace,
                subresource="status",
                field_manager=FIELD_MANAGER,
            )
        except ObjectNotFound:
            return Completed()
        except (KubeError, KubeUnavailable) as error:
            self._log.warning("status.not_written", config=key.name, error=error, retry_in=_RETRY)
            return Again(_RETRY)
        self._written[key] = managed.reference.uid, status, now
        return Again(timedelta(0)) if managed.status is not status else Completed()

    def _is_overwritten(self, key: ObjectKey, uid: str, written: ConfigStatus) -> bool:
        stored = self._stored(key)
        return stored is not None and objects.uid(stored) == uid and stored.get("status") != written.encode()

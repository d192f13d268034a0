"""Follows the log of events once for this process.

Several hubs share a database. What one of them changes is in the log, and every other one reads it there, woken by
the commit. A reader gets every event once, in order. If the feed has lost its place, because it could not read the
log for longer than events are kept, readers are told to read everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubEvent, HubStore
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.event_wait import wait_for_event
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

PAGE_SIZE: Final = 500
_POLL_INTERVAL: Final = timedelta(seconds=1)
"""How long an event may stay unseen whose announcement was lost."""
_RETRY: Final = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2), jitter=0.0)


class EventReader(Protocol):
    """Takes events. Either method may raise `Unavailable`; it is then called again."""

    async def take(self, events: Sequence[HubEvent]) -> None:
        """Take the next events, which may be some that were taken already."""

    async def resync(self) -> None:
        """Read everything again: events may be missing."""


class EventFeed:
    """The events of all hubs, for the readers of this process."""

    def __init__(self, store: HubStore, *, readers: Sequence[EventReader], clock: Clock, log: Log) -> None:
        self._store = store
        self._readers = readers
        self._clock = clock
        self._log = log
        self._position = 0
        self._may_have_missed = True
        self._has_place = False
        self.failing_since: datetime | None = None
        """Since when the log cannot be read; None if it can."""

    async def run(self, stopping: Stopping) -> None:
        """Follow the log until stopped. Failures are logged and retried."""
        failures = 0
        while not stopping.requested:
            try:
                async with self._store.wakeups() as appended:
                    while not stopping.requested:
                        appended.clear()
                        await self.read()
                        failures = 0
                        await stopping.interrupts(wait_for_event(appended, _POLL_INTERVAL))
                return
            except Unavailable as error:
                self._log.warning("events.failed", error=error)
            except Exception as error:
                self._log.exception("events.failed", error=error)
            self._may_have_missed = True
            self.failing_since = self.failing_since or self._clock.now()
            await stopping.interrupts(asyncio.sleep(_RETRY.delay(failures, 0.0).total_seconds()))
            failures += 1

    async def read(self) -> None:
        """Read up to the end of the log. Raises `Unavailable`."""
        while not await self._read_page():
            pass
        self.failing_since = None

    async def _read_page(self) -> bool:
        """Return whether this was the end of the log."""
        if self._may_have_missed:
            await self._check_position()
        events = await self._store.events(self._position, limit=PAGE_SIZE)
        if events:
            for reader in self._readers:
                await reader.take(events)
            self._position = events[-1].number
        return len(events) < PAGE_SIZE

    async def _check_position(self) -> None:
        """Start at the end of the log if there is no place to go on from."""
        if not self._has_place or self._position + 1 < await self._store.oldest_event():
            newest = await self._store.newest_event()
            for reader in self._readers:
                await reader.resync()
            self._position, self._has_place = newest, True
        self._may_have_missed = False

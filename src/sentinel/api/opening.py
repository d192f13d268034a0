"""A store that is not there yet is waited for, not died of.

A database that restarts together with its clients is the ordinary case, and a process that exits and is started
again with growing delays comes back minutes after it. So the server serves, answers 503, says in readiness why,
and goes on trying.
"""

from __future__ import annotations

from datetime import timedelta

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetStore
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.telemetry import Log

_RETRY = Backoff(initial=timedelta(milliseconds=250), maximum=timedelta(seconds=5), jitter=0.0)


class Opening:
    """Opens a store, once it can be opened."""

    def __init__(self, store: FleetStore, *, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._is_open = False

    async def open(self) -> None:
        """Tries for the first time. What a person has to mend is raised; what may mend itself is not."""
        await self._try()

    async def run(self, stopping: Stopping) -> None:
        """Goes on trying until the store is open, then waits for the end."""
        failures = 0
        while not self._is_open:
            if await stopping.interrupts(self._clock.sleep(_RETRY.delay(failures, 0.0))):
                return
            await self._try()
            failures += 1
        await stopping.wait()

    async def close(self) -> None:
        """Closes the store, opened or not."""
        await self._store.close()

    async def _try(self) -> None:
        try:
            await self._store.open()
        except Unavailable as error:
            self._log.warning("database.unavailable", error=error)
        else:
            self._is_open = True

"""Waits for the database at startup instead of exiting.

A database often restarts together with its clients. A process that exits is restarted with growing delays, so it
would come back minutes after the database. Instead the server listens, responds with 503, reports the reason in
readiness, and retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from sentinel.ports.clock import Clock
from sentinel.ports.database import Database
from sentinel.ports.errors import Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

_RETRY = Backoff(initial=timedelta(milliseconds=250), maximum=timedelta(seconds=5), jitter=0.0)


class DatabaseOpener:
    """Opens a database as soon as it is available."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        log: Log,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`check` looks at the open database before it is used. It may raise what `open` does."""
        self._database = database
        self._check = check
        self._clock = clock
        self._log = log
        self._is_open = False

    async def open(self) -> None:
        """Make the first attempt. Raises `Misconfigured`. If the database is unavailable, `run` retries."""
        await self._try_open()

    async def run(self, stopping: Stopping) -> None:
        """Retry until the database is open, then wait to be stopped."""
        failures = 0
        while not self._is_open:
            if await stopping.interrupts(self._clock.sleep(_RETRY.delay(failures, 0.0))):
                return
            await self._try_open()
            failures += 1
        await stopping.wait()

    async def close(self) -> None:
        """Close the database, whether it is open or not."""
        await self._database.close()

    async def _try_open(self) -> None:
        try:
            await self._database.open()
            if self._check is not None:
                await self._check()
        except Unavailable as error:
            self._log.warning("database.unavailable", error=error)
        else:
            self._is_open = True

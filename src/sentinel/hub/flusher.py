"""Writes what heartbeats have reported, for all instances together."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sentinel.hub.observer import HubObserver
from sentinel.hub.registry import Registry
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

INTERVAL: Final = timedelta(seconds=5)
_URGENT_INTERVAL: Final = timedelta(milliseconds=500)
"""A version that runs now, or a new message, is something that users wait for."""
_CLOSE_TIMEOUT: Final = timedelta(seconds=2)


class Flusher:
    """Flushes every few seconds, and at shutdown."""

    def __init__(self, registry: Registry, *, clock: Clock, observer: HubObserver, log: Log) -> None:
        self._registry = registry
        self._clock = clock
        self._observer = observer
        self._log = log

    async def run(self, stopping: Stopping) -> None:
        """Flush until stopped. What could not be written is written the next time."""
        flushed = self._clock.now()
        while not await stopping.interrupts(self._clock.sleep(_URGENT_INTERVAL)):
            if self._registry.is_flush_urgent or self._clock.now() - flushed >= INTERVAL:
                flushed = self._clock.now()
                await self._flush_or_log()

    async def close(self) -> None:
        """Flush once more, after the last call of an agent."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                await self._flush_or_log()
        except TimeoutError as error:
            self._log.warning("flush.failed", error=error)

    async def _flush_or_log(self) -> None:
        try:
            await self.flush()
        except Unavailable as error:
            self._log.warning("flush.failed", error=error)
        except Exception as error:
            self._log.exception("flush.failed", error=error)

    async def flush(self) -> None:
        """Flush now. Raises `Unavailable`."""
        self._registry.is_flush_urgent = False
        started = self._clock.now()
        written = await self._registry.flush()
        if written:
            self._observer.flushed(written, self._clock.now() - started)

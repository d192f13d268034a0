"""A simulated process with its own clock and network.

A killed process is cut off at once, and its successor remembers nothing. The broker redelivers what the process
held; what it had sent may still arrive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Protocol

from sentinel.runtime.lifecycle.stopping import Stopping
from tests.sim.trace import Trace
from tests.support.clocks import AdjustedClock

DRAIN, _NO_DRAIN = timedelta(seconds=4), timedelta(0)


class Link(Protocol):
    """What connects a process with others."""

    is_cut: bool

    async def close(self) -> None: ...


class SimulatedProcess(ABC):
    """A process that can be started, killed, stopped and started again."""

    def __init__(self, name: str, trace: Trace, *, network: Link, skew: timedelta) -> None:
        self.name = name
        self.network = network
        self.clock = AdjustedClock(skew)
        self.trace = trace
        self._running: asyncio.Task[None] | None = None
        self._stopping = Stopping()

    @property
    def is_up(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        self.trace.note(self.name, "starts")
        self._stopping = Stopping()
        self._running = asyncio.create_task(self._run(self._stopping))

    async def kill(self) -> None:
        """End it at once, as a power failure does."""
        await self._end("is killed", drain=_NO_DRAIN)

    async def stop(self) -> None:
        """Request a stop, and kill it after the drain time."""
        self._stopping.request()
        await self._end("is stopped", drain=DRAIN)

    @abstractmethod
    def _run(self, stopping: Stopping) -> Coroutine[Any, Any, None]:
        """Run once, with no state but the configuration."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Do what the broker notices when the process has ended."""

    async def _end(self, how: str, *, drain: timedelta) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        self.trace.note(self.name, how)
        if drain:
            await asyncio.wait((running,), timeout=drain.total_seconds())
        running.cancel()
        await asyncio.wait((running,))
        await self._disconnect()
        if not running.cancelled() and (error := running.exception()) is not None:
            self.trace.violation(f"{self.name} has crashed: {error!r}")

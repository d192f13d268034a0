"""A process of the simulation, and the machine that it runs on: its clock, its network, its power supply.

A killed process is cut off wherever it stands; what starts in its place remembers nothing. What it held, the
broker has again; what it had sent, may still arrive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.loop import SimulatedClock
from tests.sim.network import Network
from tests.sim.trace import Trace

DRAIN, _NO_TIME = timedelta(seconds=4), timedelta(0)


class SkewedClock(SimulatedClock):
    """The clock of a machine that nobody sets, or somebody suddenly does."""

    def __init__(self, skew: timedelta) -> None:
        self.skew = skew

    def now(self) -> datetime:
        return super().now() + self.skew


class Process(ABC):
    """Something that is started, killed, stopped and started again."""

    def __init__(self, name: str, trace: Trace, *, network: Network, skew: timedelta) -> None:
        self.name = name
        self.network = network
        self.clock = SkewedClock(skew)
        self._trace = trace
        self._running: asyncio.Task[None] | None = None
        self._stopping = Stopping()

    @property
    def is_up(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        self._trace.note(self.name, "starts")
        self._stopping = Stopping()
        self._running = asyncio.create_task(self._run(self._stopping))

    async def kill(self) -> None:
        """As a power cut would."""
        await self._end("is killed", drain=_NO_TIME)

    async def stop(self) -> None:
        """As an operator would: asked first, and cut off when the time is over."""
        self._stopping.request()
        await self._end("is stopped", drain=DRAIN)

    @abstractmethod
    def _run(self, stopping: Stopping) -> Coroutine[Any, Any, None]:
        """One life, which begins with nothing but what the process was configured with."""

    @abstractmethod
    async def _bury(self) -> None:
        """What the world notices when a process is no more."""

    async def _end(self, how: str, *, drain: timedelta) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        self._trace.note(self.name, how)
        if drain:
            await asyncio.wait((running,), timeout=drain.total_seconds())
        running.cancel()
        await asyncio.wait((running,))
        await self._bury()
        if not running.cancelled() and (error := running.exception()) is not None:
            self._trace.violation(f"{self.name} has died of itself: {error!r}")

"""How a loop learns that it is time to come to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Stopping:
    """Given to every loop by the lifecycle; requested once, by a signal or by another part's failure."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._scopes: dict[asyncio.Timeout, None] = {}  # not a set, whose order would be chance

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    async def wait(self) -> None:
        """Returns when stopping is requested."""
        await self._requested.wait()

    def request(self) -> None:
        """Asks every loop to come to an end; harmless when repeated."""
        if self.requested:
            return
        self._requested.set()
        for scope in self._scopes:
            scope.reschedule(asyncio.get_running_loop().time())

    async def interrupts(self, work: Coroutine[Any, Any, object]) -> bool:
        """Awaits `work`, and cancels it as soon as stopping is requested; True where that happened.

        For what may be given up at any point: `if await stopping.interrupts(clock.sleep(rest)): return`.
        """
        if self.requested:
            work.close()
            return True
        # A timeout without a deadline, which is given one when the time comes: it can tell its own
        # cancellation from any other, and there is no second task to look after.
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes[scope] = None
                try:
                    await work
                finally:
                    del self._scopes[scope]
        except TimeoutError:
            if not scope.expired():
                raise  # the work's own
            return True
        return False

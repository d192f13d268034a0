"""How a loop learns that it is time to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Stopping:
    """Given to every loop by the lifecycle; requested once, by a signal, a failure, or the part's removal."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._scopes: dict[asyncio.Timeout, None] = {}  # dicts, because the order of a set is random
        self._children: dict[Stopping, None] = {}

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    async def wait(self) -> None:
        """Returns when stopping is requested."""
        await self._requested.wait()

    def request(self) -> None:
        """Asks every loop to stop; repeating it is harmless."""
        if self.requested:
            return
        self._requested.set()
        for scope in self._scopes:
            scope.reschedule(asyncio.get_running_loop().time())
        for child in self._children:
            child.request()

    def child(self) -> Stopping:
        """One for a single part: requested together with this one, or alone. `release` it in the end."""
        child = Stopping()
        self._children[child] = None
        if self.requested:
            child.request()
        return child

    def release(self, child: Stopping) -> None:
        """Forgets a child whose part has ended; repeating it is harmless."""
        self._children.pop(child, None)

    async def interrupts(self, work: Coroutine[Any, Any, object]) -> bool:
        """Awaits `work`, and cancels it as soon as stopping is requested; True where that happened.

        For work that may be given up at any point: `if await stopping.interrupts(clock.sleep(rest)): return`.
        """
        if self.requested:
            work.close()
            return True
        # A timeout without a deadline, which gets one when stopping is requested: it can tell its own
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

"""The stop request that every loop gets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Stopping:
    """A stop request. The lifecycle sets it once: on a signal, a failure, or the removal of a part."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._scopes: dict[asyncio.Timeout, None] = {}  # dicts, because the order of a set is random
        self._children: dict[Stopping, None] = {}

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    async def wait(self) -> None:
        """Return when stopping is requested."""
        await self._requested.wait()

    def request(self) -> None:
        """Ask every loop to stop. Idempotent."""
        if self.requested:
            return
        self._requested.set()
        for scope in self._scopes:
            scope.reschedule(asyncio.get_running_loop().time())
        for child in self._children:
            child.request()

    def child(self) -> Stopping:
        """Return a request for a single part. It is set together with this one, or alone. `release` it at the
        end."""
        child = Stopping()
        self._children[child] = None
        if self.requested:
            child.request()
        return child

    def release(self, child: Stopping) -> None:
        """Forget a child whose part has ended. Idempotent."""
        self._children.pop(child, None)

    async def interrupts(self, work: Coroutine[Any, Any, object]) -> bool:
        """Await `work`, and cancel it when stopping is requested. Returns whether that happened.

        For work that can be cancelled at any point: `if await stopping.interrupts(clock.sleep(delay)): return`.
        """
        if self.requested:
            work.close()
            return True
        # A timeout without a deadline, which gets one when stopping is requested. It can tell its own cancellation
        # from any other, and needs no second task.
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes[scope] = None
                try:
                    await work
                finally:
                    del self._scopes[scope]
        except TimeoutError:
            if not scope.expired():
                raise  # raised by the work itself
            return True
        return False

"""Looking after a connection in the background, for as long as a publisher or subscriber is open.

Every broker needs the same around its own way of connecting: opening waits a little for the first attempt, so
that what a person has to mend is found at once, and leaves the rest to the background; whoever publishes waits
for the attempt under way; whoever watches hears of changes and not of attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity


@contextmanager
def loss_as_error() -> Iterator[None]:
    """Around calls over a connection: libraries end by cancellation, too, what waits for one that is given up.

    That becomes a `ConnectionError`; who was really cancelled stays so.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            raise ConnectionError("connection lost") from error
        raise


class ConnectionSupervisor:
    """The task that keeps a connection, and what is known of it."""

    def __init__(
        self,
        *,
        name: str,
        broker: str,
        patience: timedelta,
        observe: Callable[[Connectivity], None],
        role: str = "publisher",
    ) -> None:
        """`broker` is where it is, without credentials; opening waits for the first attempt, up to `patience`.

        `role` is what the keeper's owner calls itself when it is not open.
        """
        self._name = name
        self._broker = broker
        self._patience = patience
        self._observe = observe
        self._role = role
        self._task: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        self._connectivity: Connectivity | None = None
        self._misconfigured: Misconfigured | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, or will be one."""
        return self._task is not None

    async def open(self, keep: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins to `keep` a connection; raises what it `failed` by at once, if a person has to mend that."""
        if self._task is not None:
            return
        self._misconfigured = self._connectivity = None
        self._task = asyncio.create_task(keep(), name=self._name)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience.total_seconds()):
                    await self.attempt()
            if self._misconfigured is not None:
                raise self._misconfigured
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the task, and lets go whoever waits; harmless when repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self.ring()
            await asyncio.wait((task,))

    async def attempt(self) -> None:
        """Waits for the end of the attempt under way, or of all of them."""
        await self._attempted.wait()

    def ring(self) -> None:
        """An attempt has come to its end. Nothing is remembered: whoever wakes looks for itself."""
        self._attempted.set()
        self._attempted.clear()

    def connected(self) -> None:
        """Events can be sent, or received."""
        self._misconfigured = None
        self._report(Connectivity(is_connected=True, broker=self._broker))

    def disconnected(self, reason: str) -> None:
        """They cannot any more."""
        self._report(Connectivity(is_connected=False, broker=self._broker, reason=reason))

    def failed(self, error: Exception) -> None:
        """An attempt has failed; opening wants to know by what."""
        self._misconfigured = error if isinstance(error, Misconfigured) else None

    def trouble(self) -> str | None:
        """Why there is no connection, or None where there is one."""
        if self._task is None:
            return f"the {self._role} is not open"
        if self._task.done():
            return f"{self._broker}: nobody looks after the connection any more; this is a fault of our own"
        if self._connectivity is None:
            return f"{self._broker}: still connecting"
        return None if self._connectivity.is_connected else f"{self._broker}: {self._connectivity.reason}"

    def _report(self, connectivity: Connectivity) -> None:
        if connectivity != self._connectivity:
            self._connectivity = connectivity
            self._observe(connectivity)

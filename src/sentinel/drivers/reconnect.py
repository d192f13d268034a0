"""Supervision of a broker connection while a publisher or subscriber is open.

All broker drivers share this logic, and each has its own way to connect. Opening waits briefly for the first
attempt, so that a misconfiguration is raised at once, and continues in the background. Publishing waits for the
attempt in progress. Observers see changes of connectivity, not every attempt.
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
def connection_loss_as_error() -> Iterator[None]:
    """Raise `ConnectionError` if a library cancelled the call because its connection was lost.

    If the current task itself is being cancelled, the cancellation is passed on.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            raise ConnectionError("connection lost") from error
        raise


def end_now(timeout: asyncio.Timeout | None) -> None:
    """Let a timeout expire now."""
    if timeout is not None:
        with suppress(RuntimeError):  # it has ended already
            timeout.reschedule(asyncio.get_running_loop().time())


class ConnectionSupervisor:
    """Runs the task that connects and reconnects, and keeps the current connectivity."""

    def __init__(
        self,
        *,
        name: str,
        broker: str,
        open_timeout: timedelta,
        observe: Callable[[Connectivity], None],
        role: str = "publisher",
    ) -> None:
        """`broker` is its address without credentials. `start` waits up to `open_timeout` for the first attempt.

        `role` names the owner in the message that it is not open.
        """
        self._name = name
        self._broker = broker
        self._open_timeout = open_timeout
        self._observe = observe
        self._role = role
        self._task: asyncio.Task[None] | None = None
        self._attempt_ended = asyncio.Event()
        self._connectivity: Connectivity | None = None
        self._misconfigured: Misconfigured | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `run` as a task. Raise `Misconfigured` if the first attempt raised it."""
        if self._task is not None:
            return
        self._misconfigured = self._connectivity = None
        self._task = asyncio.create_task(run(), name=self._name)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._open_timeout.total_seconds()):
                    await self.wait_for_attempt()
            if self._misconfigured is not None:
                raise self._misconfigured
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Cancel the task and wake tasks that wait for an attempt. Safe to repeat."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._notify()
            await asyncio.wait((task,))

    async def wait_for_attempt(self) -> None:
        """Wait until the attempt in progress has ended, or the supervisor was stopped."""
        await self._attempt_ended.wait()

    def attempt_succeeded(self) -> None:
        self.connected()
        self._notify()

    def attempt_failed(self, error: Exception) -> None:
        self._misconfigured = error if isinstance(error, Misconfigured) else None
        self._notify()

    def connected(self) -> None:
        """Record that events can be sent or received."""
        self._misconfigured = None
        self._record(Connectivity(is_connected=True, broker=self._broker))

    def disconnected(self, reason: str) -> None:
        self._record(Connectivity(is_connected=False, broker=self._broker, reason=reason))

    def unavailable_reason(self) -> str | None:
        """Return why there is no connection, or None if there is one."""
        task, connectivity = self._task, self._connectivity  # the probes' thread is here while they change
        if task is None:
            return f"the {self._role} is not open"
        if task.done():
            return f"{self._broker}: the connection task has ended unexpectedly; this is a bug"
        if connectivity is None:
            return f"{self._broker}: still connecting"
        return None if connectivity.is_connected else f"{self._broker}: {connectivity.reason}"

    def _record(self, connectivity: Connectivity) -> None:
        if connectivity != self._connectivity:
            self._connectivity = connectivity
            self._observe(connectivity)

    def _notify(self) -> None:
        # No state is kept: a task that wakes up checks its own condition again.
        self._attempt_ended.set()
        self._attempt_ended.clear()

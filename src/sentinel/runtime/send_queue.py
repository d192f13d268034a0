"""A bounded queue whose items are sent in the background, in order and best effort.

For notifications, such as Kubernetes Events and webhooks: adding one never waits, and a server that does not
respond costs notifications, not memory. The caller decides how to report what was dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

import msgspec

from sentinel.ports.clock import Clock
from sentinel.runtime.backoff import Backoff

T = TypeVar("T")


class SendFailure(msgspec.Struct, frozen=True):
    """Why an item was not sent."""

    error: BaseException | str
    is_final: bool
    """Whether trying again is useless."""


class SendQueue(Generic[T]):
    """Items that wait to be sent."""

    def __init__(
        self,
        send: Callable[[T], Awaitable[SendFailure | None]],
        *,
        on_drop: Callable[[T, BaseException | str], None],
        max_waiting: int,
        attempts: int,
        backoff: Backoff,
        jitter: Callable[[], float],
        clock: Clock,
    ) -> None:
        """`send` tries once and raises nothing but `CancelledError`. `on_drop` is called with each item that
        failed for good or too often."""
        self._send = send
        self._on_drop = on_drop
        self._max_waiting = max_waiting
        self._attempts = attempts
        self._backoff = backoff
        self._jitter = jitter
        self._clock = clock
        self._waiting: deque[T] = deque()
        self._has_waiting = asyncio.Event()

    def add(self, item: T) -> T | None:
        """Add an item. If too many wait, the oldest is removed and returned."""
        self._waiting.append(item)
        self._has_waiting.set()
        return self._waiting.popleft() if len(self._waiting) > self._max_waiting else None

    async def send_all(self) -> None:
        """Send items until cancelled."""
        while True:
            while self._waiting:
                await self._send_oldest(attempts=self._attempts)
            self._has_waiting.clear()
            await self._has_waiting.wait()

    async def flush(self, timeout: timedelta) -> int:
        """Try to send each waiting item once. Returns how many were dropped because the time was over."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while self._waiting:
                    await self._send_oldest(attempts=1)
        except TimeoutError:
            left = len(self._waiting)
            self._waiting.clear()
            return left
        return 0

    async def _send_oldest(self, *, attempts: int) -> None:
        item = self._waiting.popleft()
        failure: SendFailure | None = None
        try:
            for attempt in range(attempts):
                failure = await self._send(item)
                if failure is None or failure.is_final:
                    break
                if attempt + 1 < attempts:
                    await self._clock.sleep(self._backoff.delay(attempt, self._jitter()))
        except asyncio.CancelledError:
            self._waiting.appendleft(item)
            raise
        if failure is not None:
            self._on_drop(item, failure.error)

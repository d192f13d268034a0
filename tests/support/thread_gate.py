"""Blocks threads until a test lets them go on."""

from __future__ import annotations

import asyncio
import threading

_TIMEOUT = 60
"""In seconds. Only a test that fails waits this long."""


class ThreadGate:
    """Threads wait at it until it is open. It counts them."""

    def __init__(self) -> None:
        self.running = 0
        """How many threads have come and not gone on."""
        self.most_running = 0
        self._is_open = threading.Event()
        self._arrivals = threading.Semaphore(0)
        self._lock = threading.Lock()

    def open(self) -> None:
        self._is_open.set()

    def wait(self) -> None:
        """Wait until the gate is open. A thread calls it."""
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        self._arrivals.release()
        assert self._is_open.wait(_TIMEOUT)
        with self._lock:
            self.running -= 1

    async def until_arrived(self, count: int = 1) -> None:
        """Wait until this many more threads have come."""
        for _ in range(count):
            assert await asyncio.to_thread(self._arrivals.acquire, timeout=_TIMEOUT)

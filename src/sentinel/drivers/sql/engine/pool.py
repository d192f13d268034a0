"""A bounded pool of connections to PostgreSQL.

asyncpg's own pool creates a task, a timer and a proxy for every use, and by default sends a query that resets the
session. Even without that query a small statement costs 1.5 times as much with it (`bench/parts_postgresql.py`): a
twelfth of a whole report, a seventh of a small read. No session state outlives a transaction here, so a connection
is returned without a reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

_ACQUIRE_TIMEOUT = timedelta(seconds=10)
_CLOSE_TIMEOUT = timedelta(seconds=10)
_MAX_IDLE = timedelta(minutes=1)
"""A firewall or proxy may have dropped a connection that was idle for longer."""


async def acquire(semaphore: asyncio.Semaphore, timeout: timedelta) -> None:
    """Acquire a semaphore. Raises `TimeoutError`."""
    if semaphore.locked():
        async with asyncio.timeout(timeout.total_seconds()):
            await semaphore.acquire()
    else:
        await semaphore.acquire()  # Does not wait. A timeout would cost more than the rest of the call.


class _Idle(NamedTuple):
    connection: Any
    since: float


class Pool:
    """Connections, opened on demand."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[_Idle] = []
        self._in_use: set[Any] = set()

    async def acquire(self) -> Any:
        """Return a connection. Raises what `connect` raises, and `TimeoutError` if none becomes free."""
        await acquire(self._free, _ACQUIRE_TIMEOUT)
        try:
            connection = self._pop_idle() or await self._connect()
        except BaseException:
            self._free.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Any) -> None:
        """Return a connection. One with an open transaction is terminated, so that the server rolls it back."""
        self._in_use.discard(connection)
        if not connection.is_closed() and connection.is_in_transaction():
            connection.terminate()
        if not connection.is_closed():
            self._idle.append(_Idle(connection, asyncio.get_running_loop().time()))
        self._free.release()

    def terminate_idle(self) -> None:
        """Terminate all idle connections: when one connection is lost, the others usually are too."""
        for connection, _ in self._idle:
            connection.terminate()
        self._idle.clear()

    async def close(self) -> None:
        """Wait for connections in use, and terminate those that are not released within the timeout."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                for _ in range(self._size):
                    await self._free.acquire()
        except TimeoutError:
            for connection in self._in_use:
                connection.terminate()
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.close(timeout=_CLOSE_TIMEOUT.total_seconds())

    def _pop_idle(self) -> Any:
        """Return the most recently used connection, or None. Terminates those that were idle for too long."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed():
                if now - since < _MAX_IDLE.total_seconds():
                    return connection
                connection.terminate()
        return None

"""The connections to PostgreSQL: a bounded number, kept for the next who needs one.

asyncpg's own pool makes a task, a timer and a proxy for every use, and by default sends a query that resets the
session. Even without that query a small statement costs half as much again with it (`bench/parts_postgresql.py`):
a twelfth of a whole report, a seventh of a small read. Nothing of a session outlives a transaction here, so a
connection goes back as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

_PATIENCE = timedelta(seconds=10)
_IDLE = timedelta(minutes=1)
"""A connection that has rested for longer may have been forgotten by something between here and the server."""


class _Idle(NamedTuple):
    connection: Any
    since: float


class Pool:
    """Connections, made when they are needed."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Idle] = []
        self._in_use: set[Any] = set()

    async def acquire(self) -> Any:
        """A connection, to be given back. Raises what connecting does, and `TimeoutError` where none is free."""
        if self._room.locked():
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await self._room.acquire()
        else:
            await self._room.acquire()  # at once, as nearly always: a timeout would cost more than the rest
        try:
            connection = self._take_idle() or await self._connect()
        except BaseException:
            self._room.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Any) -> None:
        """Gives a connection back. One in the middle of a transaction is cut: the server then undoes that."""
        self._in_use.discard(connection)
        if not connection.is_closed() and connection.is_in_transaction():
            connection.terminate()
        if not connection.is_closed():
            self._idle.append(_Idle(connection, asyncio.get_running_loop().time()))
        self._room.release()

    def distrust(self) -> None:
        """Cuts all that rest: where one connection was lost, the others as a rule are as well."""
        for connection, _ in self._idle:
            connection.terminate()
        self._idle.clear()

    async def close(self) -> None:
        """Waits a while for what is in use, and cuts what is still in use then."""
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                for _ in range(self._size):
                    await self._room.acquire()
        except TimeoutError:
            for connection in self._in_use:
                connection.terminate()
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.close(timeout=_PATIENCE.total_seconds())

    def _take_idle(self) -> Any:
        """The one that was used last; those that were not used for long are cut on the way."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed():
                if now - since < _IDLE.total_seconds():
                    return connection
                connection.terminate()
        return None

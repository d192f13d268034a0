"""Announcements between processes, by PostgreSQL's NOTIFY and LISTEN.

A NOTIFY in the transaction that it is about would make commits wait for each other: PostgreSQL holds one lock
for the whole server from there until the commit is on disk. So announcements are sent after the commit, in
transactions of their own that do not wait for the disk, and at most every few milliseconds, however many commits
there are. A process that is killed in between announces nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Protocol

from sqlalchemy import text

from sentinel.drivers.sql.engine.statements import Session, Statement
from sentinel.drivers.sql.engine.wakeups import Wakeups
from sentinel.ports.errors import Unavailable

_INTERVAL: Final = timedelta(milliseconds=10)
"""Between two announcements on all channels."""
_RECONNECT_INTERVAL: Final = timedelta(seconds=1)

_NOTIFY = Statement(text("SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, '')"))


class _Connections(Protocol):
    async def connect(self) -> Any: ...

    async def read(self, work: Any) -> Any: ...


class Announcements:
    """Sends and receives announcements for one process."""

    def __init__(self, database: _Connections) -> None:
        self._database = database
        self._wakeups = Wakeups()
        self._unsent: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def announce(self, channel: str) -> None:
        """Wake this process at once, and other processes soon."""
        self._wakeups.wake(channel)
        self._unsent[channel] = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="postgresql-announcements")

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[asyncio.Event]:
        with self._wakeups.listening(channel) as event:
            async with asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(self._receive(channel, event), name="postgresql-notifications")
                try:
                    yield event
                finally:
                    receiving.cancel()

    async def close(self) -> None:
        """Stop sending. Idempotent."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            await asyncio.wait((sending,))

    async def _send(self) -> None:
        while self._unsent:
            channels, self._unsent = self._unsent, {}
            for channel in channels:
                with suppress(Unavailable):  # readers in other processes read without an announcement, too
                    await self._database.read(_notifying(channel))
            await asyncio.sleep(_INTERVAL.total_seconds())

    async def _receive(self, channel: str, event: asyncio.Event) -> None:
        """Keep a connection that listens. Without one, only this process's announcements arrive."""
        while True:
            with suppress(Exception):  # the pool's connections report why the server cannot be reached
                await self._receive_once(channel, event)
            await asyncio.sleep(_RECONNECT_INTERVAL.total_seconds())

    async def _receive_once(self, channel: str, event: asyncio.Event) -> None:
        connection = await self._database.connect()
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(channel, lambda *_: event.set())
            event.set()  # announcements were missed until now
            await lost.wait()
        finally:
            connection.terminate()


def _notifying(channel: str) -> Any:
    def notify(session: Session) -> None:
        session.rows(_NOTIFY, channel=channel)

    return notify

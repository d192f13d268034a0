"""Watches in a test: their events one by one, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

from sentinel.core.json import Json
from sentinel.ports.kube import (
    Bookmark,
    KubeError,
    KubeObject,
    KubeUnavailable,
    ObjectChanged,
    ObjectDeleted,
    WatchEvent,
)

TIMEOUT = timedelta(seconds=90)
"""Far longer than anything here takes."""


class Watching:
    """The events of a watch, in a task of its own."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[WatchEvent | None] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._error: KubeError | KubeUnavailable | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def collect(self, events: AsyncGenerator[WatchEvent, None]) -> None:
        """Receive events until the watch ends."""
        try:
            async with aclosing(events):
                async for event in events:
                    self._events.put_nowait(event)
        except (KubeError, KubeUnavailable) as error:
            self._error = error
        finally:
            self._events.put_nowait(None)
            self._ended.set()

    async def next(self) -> ObjectChanged | ObjectDeleted:
        """Return the next change."""
        while isinstance(event := await self._next(), Bookmark):
            pass
        return event

    async def bookmark(self) -> Bookmark:
        """Return the next bookmark, which must come before any change."""
        event = await self._next()
        assert isinstance(event, Bookmark)
        return event

    async def changes(self, count: int) -> list[str]:
        """Return the next changes as texts: `changed a`, `deleted b`."""
        return [summary(await self.next()) for _ in range(count)]

    async def end(self) -> KubeError | KubeUnavailable | None:
        """Wait for the end. Return the error, or None if the watch ended normally."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await self._ended.wait()
        return self._error

    async def _next(self) -> WatchEvent:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            event = await self._events.get()
        assert event is not None, f"the watch ended: {self._error!r}"
        return event


@asynccontextmanager
async def watching(events: AsyncGenerator[WatchEvent, None]) -> AsyncIterator[Watching]:
    """Run a watch inside the context."""
    running = Watching()
    task = asyncio.create_task(running.collect(events))
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def summary(event: ObjectChanged | ObjectDeleted) -> str:
    """Return what happened to which object."""
    verb = "changed" if isinstance(event, ObjectChanged) else "deleted"
    return f"{verb} {member(event.object, 'metadata', 'name')}"


def member(body: KubeObject, *path: str) -> Json:
    """Return a member of nested objects; None if there is none."""
    value: Json = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def version(body: KubeObject) -> str:
    """Return the resource version."""
    found = member(body, "metadata", "resourceVersion")
    assert isinstance(found, str)
    return found

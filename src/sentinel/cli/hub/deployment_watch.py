"""Follows a deployment: by the hub's events, and by asking while there is no stream.

Events bring changed rows at once. The document of the deployment is read again each time, and
every now and then, because the numbers of its canaries change without an event. After a cut everything is read
again, so an event that was missed is only late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Final

import msgspec

from sentinel.cli.client.fleet import decode
from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.hub.deployment_progress import Progress, with_row
from sentinel.core.server_sent_events import EventTooLarge, ServerSentEvent
from sentinel.drivers.rest.errors import ServerError
from sentinel.hub.deployment_documents import DeploymentInstanceEvent
from sentinel.runtime.backoff import Backoff

INTERVAL: Final = timedelta(seconds=1)
"""How often the deployment is read, and the remaining times are drawn again."""
_GATHERING: Final = timedelta(milliseconds=100)
"""How long to wait for more events: those of one change arrive one after the other."""
_RECONNECTING: Final = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=10), jitter=0.0)

Show = Callable[[Progress, str], None]
"""Shows the progress, and why it cannot be read just now; empty if it can."""


class _Subject(msgspec.Struct, frozen=True):
    """Which deployment an event is about."""

    deployment_id: str


class DeploymentWatch:
    """One deployment, until it is over."""

    def __init__(self, hub: HubApiClient, deployment_id: str, *, interval: timedelta = INTERVAL) -> None:
        self._hub = hub
        self._id = deployment_id
        self._interval = interval
        self._events: list[ServerSentEvent] = []
        """Events that were not applied yet."""
        self._arrived = asyncio.Event()
        self._is_streaming = False
        self._must_read_all = True

    async def run(self, show: Show) -> Progress:
        """Show the progress until it is over, and return the last one.

        Raises `ServerError` if there is no such deployment, or if trying again does not help.
        """
        stream = asyncio.create_task(self._stream())
        try:
            return await self._follow(show)
        finally:
            stream.cancel()
            with suppress(asyncio.CancelledError):
                await stream

    async def _follow(self, show: Show) -> Progress:
        progress = await self._read()
        show(progress, "")
        while not progress.is_over:
            await self._wait()
            problem = ""
            try:
                progress = await self._next(progress)
            except ServerError as error:
                if not error.is_retryable:
                    raise
                problem = f"{error}; trying again"
                self._must_read_all = True
            show(progress, problem)
        return progress

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval.total_seconds()):
                await self._arrived.wait()
                await asyncio.sleep(_GATHERING.total_seconds())
        self._arrived.clear()

    async def _next(self, progress: Progress) -> Progress:
        events, self._events = self._events, []
        if self._must_read_all or not self._is_streaming:
            return await self._read()
        for event in events:
            progress = self._apply(progress, event)
        progress = msgspec.structs.replace(progress, deployment=await self._hub.deployment(self._id))
        # The last rows may have changed after the events that are here.
        return await self._read() if progress.is_over else progress

    async def _read(self) -> Progress:
        is_streaming = self._is_streaming
        document = await self._hub.deployment(self._id)
        rows = await self._hub.deployment_instances(self._id)
        self._must_read_all = not is_streaming
        return Progress(deployment=document, rows={row.instance_id: row for row in rows})

    def _apply(self, progress: Progress, event: ServerSentEvent) -> Progress:
        """Update the row of an instance. The batch comes from the document, which is read anyway."""
        if event.type != "deployment.instance" or decode(event.data, _Subject).deployment_id != self._id:
            return progress
        return with_row(progress, decode(event.data, DeploymentInstanceEvent))

    async def _stream(self) -> None:
        """Collect events, and connect again after a cut."""
        last_id, failures = "", 0
        while True:
            try:
                async with aclosing(self._hub.events(last_id)) as batches:
                    async for batch in batches:
                        if not self._is_streaming:
                            self._is_streaming, self._must_read_all, failures = True, True, 0
                        self._events += batch
                        last_id = batch[-1].id if batch else last_id
                        self._arrived.set()
            except (ServerError, EventTooLarge):
                # Without a stream the deployment is polled, and a failed poll shows the error.
                last_id = ""
            self._is_streaming = False
            await asyncio.sleep(_RECONNECTING.delay(failures, 0.0).total_seconds())
            failures += 1

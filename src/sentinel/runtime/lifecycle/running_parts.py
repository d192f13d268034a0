"""The parts of a run that have been started, in that order: they drain together and close in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.lifecycle.supervisor import Supervisor


class RunningParts:
    """A task for each part, from its start until it is closed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: dict[Supervisor, asyncio.Task[None]] = {}

    @property
    def in_order(self) -> Sequence[Supervisor]:
        """In order of start."""
        return tuple(self._tasks)

    def start(self, part: Supervisor) -> asyncio.Task[None]:
        """Starts a part. Its task ends when the part has stopped or failed for good."""
        part.announce()
        task = self._tasks[part] = asyncio.create_task(part.run(), name=part.name)
        return task

    async def all_done(self) -> None:
        """Returns when no part runs any more, those included that are started meanwhile."""
        while pending := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(pending)

    async def drain(self, parts: Sequence[Supervisor]) -> None:
        """Waits until these parts, which were asked to stop, have ended, or their time is over."""
        await self._wait(parts, self._service.drain_timeout, otherwise="drain.expired")

    async def close(self, parts: Sequence[Supervisor]) -> None:
        """Cancels what is left of these parts and closes them, the one that was started last first."""
        for task in self._left(parts):
            task.cancel()
        await self._wait(parts, self._service.close_timeout, otherwise="cancel.ignored")
        for part in reversed(parts):
            await part.close()
            self._service.stopping.release(part.stopping)
            self._tasks.pop(part, None)

    async def _wait(self, parts: Sequence[Supervisor], within: timedelta, *, otherwise: str) -> None:
        if left := self._left(parts):
            await asyncio.wait(left, timeout=within.total_seconds())
        if names := [part.name for part in self._left(parts).values()]:
            self._service.log.warning(otherwise, parts=names, after=within)

    def _left(self, parts: Sequence[Supervisor]) -> dict[asyncio.Task[None], Supervisor]:
        """Those that still run. A part that is being removed when the service stops may be gone already."""
        tasks = {self._tasks[part]: part for part in parts if part in self._tasks}
        return {task: part for task, part in tasks.items() if not task.done()}

"""Parts that come and go while a service runs, such as one pulse per SentinelConfig.

A command makes a `DynamicParts`, gives it to the part that decides what has to run, and hands it to `runner.run`.
What is added is a part like any other: it has its own task group, checks and metrics, is built again after a
failure, and is drained and closed with the rest when the service stops.

    parts.add("pulse prod/clusters", build)                  # starts it
    await parts.replace("pulse prod/clusters", build_other)  # stops it, then starts another under its name
    await parts.remove("pulse prod/clusters")                # stops it, drains and closes it, forgets it

A part that fails is built again with the backoff it was added with, else with that of the service. If there is
neither, its failure ends the service with exit code 1, as that of any part does: a caller that does not want this
gives `restart`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import PartFactory
from sentinel.runtime.lifecycle.running_parts import RunningParts
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.lifecycle.supervisor import Supervisor


class PartExists(Exception):
    """A part, or a check of readiness, has this name already."""


class _Entry:
    """A name, and the part that has it now."""

    def __init__(self, part: Supervisor) -> None:
        self.part = part
        self.lock = asyncio.Lock()
        """Held while the part is removed or replaced."""


class _Run(msgspec.Struct, frozen=True):
    service: Service
    running: RunningParts
    changes: asyncio.TaskGroup
    """Removals and replacements, which go on where their caller is cancelled."""


class DynamicParts:
    """Adds parts to one run of a service, and removes them again. Used on the service's event loop only."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._run: _Run | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that were added, in that order; a part that is being removed has its name until it is closed."""
        return tuple(self._entries)

    def add(self, name: str, build: PartFactory, *, restart: Backoff | None = None) -> bool:
        """Starts a part and returns at once. False where the service is stopping and nothing is started any more.

        The part goes by this name in logs and readiness, whatever its `Part.name`; its checks are shown as
        `<name>.<check>`. A finite part that has returned is closed and forgotten.
        Raises `PartExists` where the name is taken, and `RuntimeError` before the service has opened what parts
        share.
        """
        run = self._bound()
        if run.service.stopping.requested:
            return False
        if name in self._entries or run.service.health.has(name):
            raise PartExists(f"expected a part name that is not taken, got {name!r}")
        entry = self._entries[name] = _Entry(self._supervisor(run, name, build, restart))
        self._start(run, name, entry)
        run.service.log.info("part.added", name=name)
        return True

    async def remove(self, name: str) -> bool:
        """Stops one part: asks it to stop, waits for it as long as `drain` allows, closes it and forgets it.

        False where there is none of this name. Cancelling the caller does not stop the removal. A loop of the part
        itself must not wait for it: the two would wait for each other until `drain` is over.
        """
        entry = self._entries.get(name)
        return entry is not None and await self._uncancelled(self._remove(name, entry))

    async def replace(self, name: str, build: PartFactory, *, restart: Backoff | None = None) -> bool:
        """Removes the part of this name and adds another in its place; adds it where there is none.

        The two never run at once. In between, the name stays known and readiness says that it is being replaced.
        False where the service is stopping and nothing is started any more.
        """
        if name not in self._entries:
            return self.add(name, build, restart=restart)
        return await self._uncancelled(self._replace(name, build, restart))

    @asynccontextmanager
    async def within(self, service: Service, running: RunningParts) -> AsyncIterator[None]:
        """For the lifecycle: in this context parts may be added. It ends when no removal is under way."""
        if self._run is not None:
            raise RuntimeError("expected dynamic parts that are not in use, got those of another run")
        async with asyncio.TaskGroup() as changes:
            self._run = _Run(service, running, changes)
            try:
                yield
            finally:
                self._entries.clear()

    async def _remove(self, name: str, entry: _Entry, *, only: Supervisor | None = None) -> bool:
        """Removes the part that has the name when its turn comes; where `only` is given, no other than that."""
        run = self._bound()
        async with entry.lock:
            if self._entries.get(name) is not entry:
                return False  # another removal came first
            if only is not None and entry.part is not only:
                return False  # replaced meanwhile
            await self._end(run, entry.part, is_replaced=False)
            self._entries.pop(name, None)
        run.service.log.info("part.removed", name=name)
        return True

    async def _replace(self, name: str, build: PartFactory, restart: Backoff | None) -> bool:
        run = self._bound()
        while entry := self._entries.get(name):
            async with entry.lock:
                if self._entries.get(name) is not entry:
                    continue  # removed while this waited; perhaps added again since
                await self._end(run, entry.part, is_replaced=True)
                if run.service.stopping.requested:
                    return False
                entry.part = self._supervisor(run, name, build, restart)
                self._start(run, name, entry)
            run.service.log.info("part.replaced", name=name)
            return True
        return self.add(name, build, restart=restart)

    async def _end(self, run: _Run, part: Supervisor, *, is_replaced: bool) -> None:
        part.retire(is_replaced=is_replaced)
        await run.running.drain([part])
        await run.running.close([part])

    def _supervisor(self, run: _Run, name: str, build: PartFactory, restart: Backoff | None) -> Supervisor:
        return Supervisor(
            build,
            service=run.service,
            name=name,
            adopts_name=False,
            qualifies_checks=True,
            restart=restart or run.service.restart,
        )

    def _start(self, run: _Run, name: str, entry: _Entry) -> None:
        part = entry.part

        def ended(task: asyncio.Task[None]) -> None:
            if not part.stopping.requested:  # a finite part has returned
                run.changes.create_task(self._remove(name, entry, only=part))

        run.running.start(part).add_done_callback(ended)

    async def _uncancelled(self, change: Coroutine[Any, Any, bool]) -> bool:
        return await asyncio.shield(self._bound().changes.create_task(change))

    def _bound(self) -> _Run:
        if self._run is None:
            raise RuntimeError("expected a service that runs its parts, got one that has not started them yet")
        return self._run

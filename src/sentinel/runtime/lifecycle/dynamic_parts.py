"""Parts that are added and removed while a service runs, such as one pulse per SentinelConfig.

A command creates a `DynamicParts`, gives it to the part that decides what runs, and passes it to `runner.run`. An
added part is like any other: it has its own task group, checks and metrics, is built again after a failure, and is
drained and closed with the rest when the service stops.

    parts.add("pulse prod/clusters", build)                  # starts it
    await parts.replace("pulse prod/clusters", build_other)  # stops it, then starts another under its name
    await parts.remove("pulse prod/clusters")                # stops, drains, closes and forgets it

A failed part is built again with the backoff it was added with, or else with the service's. If there is neither,
its failure ends the service with exit code 1. A caller that does not want this passes `restart`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import PartFactory
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.lifecycle.supervisor import PartObserver, RunningParts, Supervisor


class PartExists(Exception):
    """A part or a readiness check already has this name."""


class _Entry:
    """The part that currently has a name."""

    def __init__(self, part: Supervisor) -> None:
        self.part = part
        self.lock = asyncio.Lock()
        """Held while the part is removed or replaced."""


class _Run(msgspec.Struct, frozen=True):
    service: Service
    running: RunningParts
    changes: asyncio.TaskGroup
    """Removals and replacements, which continue if their caller is cancelled."""


class DynamicParts:
    """Adds parts to one run of a service, and removes them. Use it only on the service's event loop."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._run: _Run | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order of addition. A part that is being removed keeps its name until it is closed."""
        return tuple(self._entries)

    def add(
        self,
        name: str,
        build: PartFactory,
        *,
        restart: Backoff | None = None,
        observe: PartObserver = lambda failure: None,
    ) -> bool:
        """Start a part and return immediately. Returns False if the service is stopping and starts nothing.

        Logs and readiness use this name instead of `Part.name`. The part's checks are shown as `<name>.<check>`.
        A finite part that has returned is closed and forgotten. `observe` is called each time the part has started
        or failed.
        Raises `PartExists` if the name is taken, and `RuntimeError` before the service has opened its shared
        resources.
        """
        run = self._current_run()
        if run.service.stopping.requested:
            return False
        if name in self._entries or run.service.health.has(name):
            raise PartExists(f"expected a part name that is not taken, got {name!r}")
        entry = self._entries[name] = _Entry(self._supervisor(run, name, build, restart, observe))
        self._start(run, name, entry)
        run.service.log.info("part.added", name=name)
        return True

    async def remove(self, name: str) -> bool:
        """Stop a part, wait for it at most for the drain timeout, close it and forget it.

        Returns False if there is no part of this name. The removal continues if the caller is cancelled. A loop of
        the part itself must not await this: both would wait for each other until the timeout.
        """
        entry = self._entries.get(name)
        return entry is not None and await self._shielded(self._remove(name, entry))

    async def replace(self, name: str, build: PartFactory, *, restart: Backoff | None = None) -> bool:
        """Remove the part of this name, if any, and add another in its place.

        The two never run at the same time. Meanwhile readiness shows the name as being replaced. Returns False if
        the service is stopping and starts nothing.
        """
        if name not in self._entries:
            return self.add(name, build, restart=restart)
        return await self._shielded(self._replace(name, build, restart))

    @asynccontextmanager
    async def bind(self, service: Service, running: RunningParts) -> AsyncIterator[None]:
        """Allow parts to be added in this context. Used by the runner. Waits at the end for pending removals."""
        if self._run is not None:
            raise RuntimeError("expected dynamic parts that are not in use, got those of another run")
        async with asyncio.TaskGroup() as changes:
            self._run = _Run(service, running, changes)
            try:
                yield
            finally:
                self._entries.clear()

    async def _remove(self, name: str, entry: _Entry, *, only: Supervisor | None = None) -> bool:
        """Remove the part that has the name once the lock is held. With `only`, do nothing if another part has it
        by then."""
        run = self._current_run()
        async with entry.lock:
            if self._entries.get(name) is not entry:
                return False  # another removal came first
            if only is not None and entry.part is not only:
                return False  # replaced meanwhile
            await self._stop(run, entry.part, is_replaced=False)
            self._entries.pop(name, None)
        run.service.log.info("part.removed", name=name)
        return True

    async def _replace(self, name: str, build: PartFactory, restart: Backoff | None) -> bool:
        run = self._current_run()
        while entry := self._entries.get(name):
            async with entry.lock:
                if self._entries.get(name) is not entry:
                    continue  # removed while this waited, and perhaps added again
                await self._stop(run, entry.part, is_replaced=True)
                if run.service.stopping.requested:
                    return False
                entry.part = self._supervisor(run, name, build, restart)
                self._start(run, name, entry)
            run.service.log.info("part.replaced", name=name)
            return True
        return self.add(name, build, restart=restart)

    async def _stop(self, run: _Run, part: Supervisor, *, is_replaced: bool) -> None:
        part.retire(is_replaced=is_replaced)
        await run.running.drain([part])
        await run.running.close([part])

    def _supervisor(
        self,
        run: _Run,
        name: str,
        build: PartFactory,
        restart: Backoff | None,
        observe: PartObserver = lambda failure: None,
    ) -> Supervisor:
        return Supervisor(
            build,
            service=run.service,
            name=name,
            uses_part_name=False,
            prefixes_checks=True,
            restart=restart or run.service.restart,
            observe=observe,
        )

    def _start(self, run: _Run, name: str, entry: _Entry) -> None:
        part = entry.part

        def on_done(task: asyncio.Task[None]) -> None:
            if not part.stopping.requested:  # a finite part has returned
                run.changes.create_task(self._remove(name, entry, only=part))

        run.running.start(part).add_done_callback(on_done)

    async def _shielded(self, change: Coroutine[Any, Any, bool]) -> bool:
        return await asyncio.shield(self._current_run().changes.create_task(change))

    def _current_run(self) -> _Run:
        if self._run is None:
            raise RuntimeError("expected a service that runs its parts, got one that has not started them yet")
        return self._run

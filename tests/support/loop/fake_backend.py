"""Where the adapters of a loop have their work done: a service of the test's own, which is told how the work goes.

It keeps a task for each adapter, resource and generation, as a system that adapters call would. To put a task that
is there changes nothing; so what was begun twice can be seen, and every look at a resource is noted with the event
that led to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from tests.support.brokers.rabbitmq import TIMEOUT
from tests.support.http.loopback import listen


class State(StrEnum):
    """How far a task is."""

    IN_PROGRESS = "in progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """No adapter expects that."""


class Visit(msgspec.Struct, frozen=True):
    """An adapter's look at a resource."""

    adapter: str
    resource_id: str
    generation: int
    event_id: str
    event_time: datetime
    is_met: bool
    """Whether it found what it needs before it can work."""
    time: datetime


class _Cause(msgspec.Struct, frozen=True):
    event_id: str
    event_time: datetime


class Workshop:
    """Tasks, and who came for them. Tasks succeed at once where nothing else is said."""

    def __init__(self) -> None:
        self.url = ""
        self.visits: list[Visit] = []
        self.begun: Counter[tuple[str, str, int]] = Counter()
        """How often a task was begun, by adapter, resource and generation."""
        self._tasks: dict[tuple[str, str, int], State] = {}
        self._first: dict[tuple[str, str], State] = {}
        self._held: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_put("/{what:tasks|waits|removals}/{adapter}/{id}/{generation}", self._receive)
        self._runner = web.AppRunner(app)
        self.url = await listen(self._runner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self.release()
        await self._runner.cleanup()

    def set_task(self, adapter: str, resource_id: str, state: State | None, *, generation: int = 1) -> None:
        """Puts a task into a state, or away; whoever comes for it finds it so."""
        if state is None:
            self._tasks.pop((adapter, resource_id, generation), None)
        else:
            self._tasks[adapter, resource_id, generation] = state

    def begin_with(self, adapter: str, resource_id: str, state: State) -> None:
        """What every task of this resource is as soon as it is begun, from now on."""
        self._first[adapter, resource_id] = state

    def hold(self, adapter: str, resource_id: str) -> None:
        """The work is done as always, but nobody is told."""
        self._held.add((adapter, resource_id))

    async def release(self) -> None:
        """Everybody is told."""
        async with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def mark(self) -> int:
        """This moment: what has been noted until now is before it."""
        return len(self.visits)

    def of(
        self, resource_id: str, adapter: str = "zones", *, generation: int | None = None, since: int = 0
    ) -> list[Visit]:
        """An adapter's looks at a resource, at this generation where one is named, since that mark."""
        return [
            each
            for each in self.visits[since:]
            if (each.resource_id, each.adapter) == (resource_id, adapter) and generation in (None, each.generation)
        ]

    async def until(
        self,
        resource_id: str,
        adapter: str = "zones",
        *,
        count: int = 1,
        generation: int | None = None,
        since: int = 0,
    ) -> list[Visit]:
        """Waits until there are so many of them; all that there are."""
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()), self._changed:
                while len(seen := self.of(resource_id, adapter, generation=generation, since=since)) < count:
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"expected {count} looks, got {self.of(resource_id, adapter)}") from None
        return seen

    async def _receive(self, request: web.Request) -> web.Response:
        what, adapter, resource_id = (request.match_info[name] for name in ("what", "adapter", "id"))
        generation = int(request.match_info["generation"])
        cause = msgspec.json.decode(await request.read(), type=_Cause)
        task = adapter, resource_id, generation
        async with self._changed:
            if what == "tasks" and task not in self._tasks:
                self.begun[task] += 1
                self._tasks[task] = self._first.get((adapter, resource_id), State.SUCCEEDED)
            now = datetime.now(UTC)
            self.visits.append(Visit(*task, cause.event_id, cause.event_time, what != "waits", now))
            self._changed.notify_all()
            while (adapter, resource_id) in self._held:
                await self._changed.wait()
        return web.Response(text=self._tasks.get(task, "") if what == "tasks" else "")

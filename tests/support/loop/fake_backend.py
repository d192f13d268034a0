"""The service that the loop's adapters call; the test controls how its tasks proceed.

It has one task for each adapter, resource and generation. Putting an existing task changes nothing. It counts how
often a task was started and records every call with the event that caused it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from aiohttp import web

from tests.support.brokers.rabbitmq import TIMEOUT
from tests.support.http.loopback import LoopbackServer


class State(StrEnum):
    """The state of a task.

    The adapters do not know the state `LOST`.
    """

    IN_PROGRESS = "in progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


class TaskCall(msgspec.Struct, frozen=True):
    """A call of an adapter about a resource.

    `is_met` tells whether the adapter's preconditions were met.
    """

    adapter: str
    resource_id: str
    generation: int
    event_id: str
    event_time: datetime
    is_met: bool
    time: datetime


class _CausingEvent(msgspec.Struct, frozen=True):
    event_id: str
    event_time: datetime


class FakeBackend(LoopbackServer):
    """Tasks and the calls about them. Tasks succeed at once unless the test says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[TaskCall] = []
        self.started: Counter[tuple[str, str, int]] = Counter()
        """How often each task was started, by adapter, resource and generation."""
        self._tasks: dict[tuple[str, str, int], State] = {}
        self._initial_states: dict[tuple[str, str], State] = {}
        self._held: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()

    def make_runner(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_put("/{operation:tasks|waits|removals}/{adapter}/{id}/{generation}", self._receive)
        app.on_shutdown.append(lambda _: self.release())
        return web.AppRunner(app)

    def set_task(self, adapter: str, resource_id: str, state: State | None, *, generation: int = 1) -> None:
        """Set the state of a task, or remove it."""
        if state is None:
            self._tasks.pop((adapter, resource_id, generation), None)
        else:
            self._tasks[adapter, resource_id, generation] = state

    def set_initial_state(self, adapter: str, resource_id: str, state: State) -> None:
        """Set the state in which tasks of this resource start."""
        self._initial_states[adapter, resource_id] = state

    def hold(self, adapter: str, resource_id: str) -> None:
        """Delay the responses about this resource; the work is done as usual."""
        self._held.add((adapter, resource_id))

    async def release(self) -> None:
        """Send all delayed responses."""
        async with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def mark(self) -> int:
        """The number of calls so far, for `since`."""
        return len(self.calls)

    def calls_for(
        self, resource_id: str, adapter: str = "zones", *, generation: int | None = None, since: int = 0
    ) -> list[TaskCall]:
        """The calls of an adapter about a resource since the mark, optionally only of one generation."""
        return [
            each
            for each in self.calls[since:]
            if (each.resource_id, each.adapter) == (resource_id, adapter) and generation in (None, each.generation)
        ]

    async def until_called(
        self,
        resource_id: str,
        adapter: str = "zones",
        *,
        count: int = 1,
        generation: int | None = None,
        since: int = 0,
    ) -> list[TaskCall]:
        """Wait for `count` calls and return all of them."""
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()), self._changed:
                while (
                    len(seen := self.calls_for(resource_id, adapter, generation=generation, since=since)) < count
                ):
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"expected {count} calls, got {self.calls_for(resource_id, adapter)}") from None
        return seen

    async def _receive(self, request: web.Request) -> web.Response:
        operation, adapter, resource_id = (request.match_info[name] for name in ("operation", "adapter", "id"))
        generation = int(request.match_info["generation"])
        event = msgspec.json.decode(await request.read(), type=_CausingEvent)
        task = adapter, resource_id, generation
        async with self._changed:
            if operation == "tasks" and task not in self._tasks:
                self.started[task] += 1
                self._tasks[task] = self._initial_states.get((adapter, resource_id), State.SUCCEEDED)
            now = datetime.now(UTC)
            self.calls.append(TaskCall(*task, event.event_id, event.event_time, operation != "waits", now))
            self._changed.notify_all()
            while (adapter, resource_id) in self._held:
                await self._changed.wait()
        return web.Response(text=self._tasks.get(task, "") if operation == "tasks" else "")

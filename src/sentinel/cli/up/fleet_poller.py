"""Polling the fleet through the API, for the live view and for activities such as "is ready".

Neither pulses nor adapters report names and conditions of the whole fleet, so they are read as by any client. Only
the first page of a large kind is read, which is more than a terminal can show; its pulse knows how many of the
rest are ready.

A kind is read again when its stream says that something has changed, so that a change shows when it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import timedelta

import msgspec

from sentinel.cli.client import resource_table
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import FleetClient, ListPage, decode
from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.cli.up.dashboard_state import DashboardState, KindState
from sentinel.core.fleet.documents import KindRules
from sentinel.drivers.rest.errors import ServerError
from sentinel.ports.clock import Clock
from sentinel.ports.fleet_stream import Changed, Removed
from sentinel.runtime.lifecycle.stopping import Stopping

_INTERVAL = timedelta(seconds=1)
"""Between two polls while nothing changes."""
_SHORTEST_INTERVAL = timedelta(milliseconds=200)
"""Between two polls however much changes; about as often as the view is drawn."""
_PAGE_SIZE = 500


class _State(msgspec.Struct, frozen=True):
    """The part of a resource whose changes are emitted."""

    is_ready: bool
    generation: int
    is_deleting: bool


class FleetPoller:
    """A poller of the watched kinds, which updates the dashboard and emits changes."""

    def __init__(
        self,
        *,
        kinds: Sequence[KindRules],
        dashboard: DashboardState,
        on_activity: OnActivity,
        clock: Clock,
        connect: Callable[[], ServerConnection],
    ) -> None:
        self._kinds = kinds
        self._dashboard = dashboard
        self._on_activity = on_activity
        self._clock = clock
        self._connect = connect
        self._states: dict[str, dict[str, _State]] = {}
        self._has_changes = asyncio.Event()

    async def run(self, stopping: Stopping) -> None:
        """Poll until stopped. Errors are retried at the next poll."""
        async with self._connect() as connection, asyncio.TaskGroup() as group:
            fleet = FleetClient(connection)
            following = [group.create_task(self._follow(connection, kind)) for kind in self._kinds]
            while not await stopping.interrupts(self._poll(fleet)):
                if await stopping.interrupts(self._wait()):
                    break
            for each in following:
                each.cancel()

    async def _follow(self, connection: ServerConnection, kind: KindRules) -> None:
        async with aclosing(connection.stream(kind.plural, fields="id").follow()) as batches:
            async for batch in batches:
                if any(isinstance(item, Changed | Removed) for item in batch):
                    self._has_changes.set()

    async def _wait(self) -> None:
        """Wait for a change, or for the next poll."""
        await asyncio.sleep(_SHORTEST_INTERVAL.total_seconds())
        async with asyncio.TaskGroup() as group:
            waiting = {
                group.create_task(self._has_changes.wait()),
                group.create_task(self._clock.sleep(_INTERVAL - _SHORTEST_INTERVAL)),
            }
            _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
        self._has_changes.clear()

    async def _poll(self, fleet: FleetClient) -> None:
        query = {"size": str(_PAGE_SIZE), "fields": resource_table.FIELDS, "order": "created_time"}
        for kind in self._kinds:
            try:
                page = decode(await fleet.list_page(kind.plural, query), ListPage)
                resources = [resource_table.decode(item) for item in page.items]
            except ServerError:
                return  # the readiness checks show what is wrong
            self._dashboard.update(KindState(kind.plural, kind.required_adapters, resources, page.total))
            self._emit_changes(kind, resources, is_complete=page.next is None)

    def _emit_changes(self, kind: KindRules, resources: Sequence[ResourceSummary], *, is_complete: bool) -> None:
        before = self._states.get(kind.plural)
        now = {each.id: _State(each.is_ready, each.generation, each.is_deleting) for each in resources}
        self._states[kind.plural] = now
        if before is None:
            return  # the first poll has nothing to compare with
        for resource in resources:
            earlier, current = before.get(resource.id), now[resource.id]
            if earlier != current and (change := _describe_change(earlier, current)) is not None:
                self._emit(kind, resource.id, resource.name, *change)
        if is_complete:
            for resource_id in before.keys() - now.keys():
                name = self._dashboard.name_of(resource_id)
                self._emit(kind, resource_id, name, "is gone", ActivityLevel.SUCCESS)

    def _emit(self, kind: KindRules, resource_id: str, name: str, change: str, level: ActivityLevel) -> None:
        self._on_activity(
            Activity(
                at=self._clock.now(),
                source="fleet",
                resource_id=resource_id,
                name=name,
                text=f"{kind.kind} {change}",
                level=level,
            )
        )


def _describe_change(before: _State | None, now: _State) -> tuple[str, ActivityLevel] | None:
    if before is None:
        return "is new", ActivityLevel.INFO
    if now.is_deleting:
        return ("is being deleted", ActivityLevel.PENDING) if not before.is_deleting else None
    if now.is_ready and not (before.is_ready and before.generation == now.generation):
        return f"is ready at generation {now.generation}", ActivityLevel.SUCCESS
    if before.is_ready and not now.is_ready:
        return f"is not ready at generation {now.generation}", ActivityLevel.PENDING
    return None

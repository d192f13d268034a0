"""How the fleet stands, read through its API; and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.narration import Activity
from sentinel.cli.up.overview import Overview
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START, ManualClock
from tests.cli.client.serving import ServedFleet
from tests.cli.up.reports import SECOND
from tests.support.fleet.api_client import KINDS

WATCHED = [kind for kind in KINDS if kind.required_adapters]


class Watching:
    """An overview that looks when it is told to."""

    def __init__(self, clock: ManualClock, board: DashboardState, told: list[Activity]) -> None:
        self._clock = clock
        self.board = board
        self.told = told

    async def look(self) -> list[str]:
        """One look; what is told because of it."""
        count = len(self.told)
        await self._clock.advance(SECOND)
        await asyncio.wait_for(self._clock.until_asleep(), 10)
        return [f"{each.name}: {each.text}" for each in self.told[count:]]


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watching]:
    clock, board, told = ManualClock(), DashboardState(started=START), list[Activity]()
    overview = Overview(
        kinds=WATCHED, board=board, tell=told.append, clock=clock, connect=lambda: ServerConnection(server=url)
    )
    stopping = Stopping()
    running = asyncio.create_task(overview.run(stopping))
    await asyncio.wait_for(clock.until_asleep(), 10)
    try:
        yield Watching(clock, board, told)
    finally:
        stopping.request()
        await asyncio.wait_for(running, 10)


async def test_the_life_of_a_resource_is_told(fleet: ServedFleet) -> None:
    async with watching(fleet.url) as view:
        one = await fleet.create(spec={"replicas": 1})
        created = await view.look()
        await fleet.reports(f"clusters/{one['id']}", "validation", "dns")
        ready = await view.look()
        silent = await view.look()
        await fleet.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 2}})
        changed = await view.look()
        await fleet.call("DELETE", f"clusters/{one['id']}")
        deleting = await view.look()
        await fleet.reports(f"clusters/{one['id']}", "validation", "dns", generation=3, finalized=True)
        gone = await view.look()

    assert created == ["one: Cluster is new"]
    assert ready == ["one: Cluster is ready at generation 1"]
    assert silent == []
    assert changed == ["one: Cluster is not ready at generation 2"]
    assert deleting == ["one: Cluster is being deleted"]
    assert gone == ["one: Cluster is gone"]


async def test_what_was_there_at_the_start_is_shown_and_is_no_news(fleet: ServedFleet) -> None:
    await fleet.create()

    async with watching(fleet.url) as view:
        shelves = {shelf.plural: (shelf.total, shelf.required) for shelf in view.board.shelves}

    assert view.told == []
    assert shelves == {"clusters": (1, ("validation", "dns")), "nodepools": (0, ("validation",))}


async def test_an_api_that_does_not_answer_changes_nothing() -> None:
    async with ServedFleet() as fleet:
        await fleet.create()
        async with watching(fleet.url) as view:
            await fleet._serving.close()

            told = await view.look()

            assert told == []
            assert [shelf.total for shelf in view.board.shelves] == [1, 0]

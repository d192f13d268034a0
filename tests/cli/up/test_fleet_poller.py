"""Polling the fleet through its API, and the activities that result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.activity import Activity
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.fleet_poller import FleetPoller
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START, ManualClock
from tests.cli.client.serving import ServedFleet
from tests.cli.up.reports import SECOND
from tests.support.fleet.api_client import KINDS

WATCHED = [kind for kind in KINDS if kind.required_adapters]


class SteppedPoller:
    """A running `FleetPoller` whose clock the test advances. Changes that its stream brings make it poll, too."""

    def __init__(self, clock: ManualClock, dashboard: DashboardState, activities: list[Activity]) -> None:
        self._clock = clock
        self.dashboard = dashboard
        self.activities = activities
        self._returned = 0

    async def poll(self) -> list[str]:
        """Poll once; return the activities that are new."""
        await self._clock.advance(SECOND)
        await asyncio.wait_for(self._clock.until_asleep(), 10)
        count, self._returned = self._returned, len(self.activities)
        return [f"{each.name}: {each.text}" for each in self.activities[count:]]

    async def until_shown(self, text: str) -> None:
        """Wait for an activity without a poll."""
        async with asyncio.timeout(60):
            while text not in [each.text for each in self.activities]:  # noqa: ASYNC110  # it has no signal
                await asyncio.sleep(0.01)


@asynccontextmanager
async def polling(url: str) -> AsyncIterator[SteppedPoller]:
    clock, dashboard, activities = ManualClock(), DashboardState(started=START), list[Activity]()
    poller = FleetPoller(
        kinds=WATCHED,
        dashboard=dashboard,
        on_activity=activities.append,
        clock=clock,
        connect=lambda: ServerConnection(server=url),
    )
    stopping = Stopping()
    running = asyncio.create_task(poller.run(stopping))
    await asyncio.wait_for(clock.until_asleep(), 10)
    try:
        yield SteppedPoller(clock, dashboard, activities)
    finally:
        stopping.request()
        await asyncio.wait_for(running, 10)


async def test_every_change_of_a_resource_is_shown(fleet: ServedFleet) -> None:
    async with polling(fleet.url) as poller:
        one = await fleet.create(spec={"replicas": 1})
        created = await poller.poll()
        await fleet.reports(f"clusters/{one['id']}", "validation", "dns")
        ready = await poller.poll()
        unchanged = await poller.poll()
        await fleet.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 2}})
        changed = await poller.poll()
        await fleet.call("DELETE", f"clusters/{one['id']}")
        deleting = await poller.poll()
        await fleet.reports(f"clusters/{one['id']}", "validation", "dns", generation=3, finalized=True)
        gone = await poller.poll()

    assert created == ["one: Cluster is new"]
    assert ready == ["one: Cluster is ready at generation 1"]
    assert unchanged == []
    assert changed == ["one: Cluster is not ready at generation 2"]
    assert deleting == ["one: Cluster is being deleted"]
    assert gone == ["one: Cluster is gone"]


async def test_a_change_is_shown_without_waiting_for_the_next_poll(fleet: ServedFleet) -> None:
    async with polling(fleet.url) as poller:
        one = await fleet.create(spec={"replicas": 1})
        await poller.until_shown("Cluster is new")
        await fleet.reports(f"clusters/{one['id']}", "validation", "dns")
        await poller.until_shown("Cluster is ready at generation 1")


async def test_resources_at_the_start_are_listed_but_no_activity(fleet: ServedFleet) -> None:
    await fleet.create()

    async with polling(fleet.url) as poller:
        kinds = {kind.plural: (kind.total, kind.required) for kind in poller.dashboard.kinds}

    assert poller.activities == []
    assert kinds == {"clusters": (1, ("validation", "dns")), "nodepools": (0, ("validation",))}


async def test_an_unreachable_api_changes_nothing() -> None:
    async with ServedFleet() as fleet:
        await fleet.create()
        async with polling(fleet.url) as poller:
            await fleet.stop_serving()

            activities = await poller.poll()

            assert activities == []
            assert [kind.total for kind in poller.dashboard.kinds] == [1, 0]

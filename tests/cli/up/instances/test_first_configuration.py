"""Assigning a first configuration to new instances, through the hub's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.cli.up.activity import Activity
from sentinel.cli.up.instances import configurations
from sentinel.cli.up.instances.first_configuration import FirstConfiguration
from sentinel.cli.up.instances.ports import Ports
from sentinel.core.hub.states import State
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import ManualClock
from tests.cli.hub.served_hub import ServedHub
from tests.support.hub.store_records import instance

TEXT = configurations.forwarding(Ports(8100))
OTHER = configurations.forwarding(Ports(8100), greeting="other")


class Run:
    """A run with a clock that the test advances."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.activities: list[Activity] = []

    async def attempt_again(self) -> None:
        await asyncio.wait_for(self.clock.until_asleep(), 60)
        await self.clock.advance(timedelta(seconds=1))


@asynccontextmanager
async def running(hub: ServedHub, *ids: str) -> AsyncIterator[Run]:
    run, stopping = Run(), Stopping()
    first = FirstConfiguration(
        connect=hub.connection,
        instances=ids,
        content=TEXT,
        on_activity=run.activities.append,
        clock=run.clock,
    )
    task = asyncio.create_task(first.run(stopping))
    try:
        yield run
        await asyncio.wait_for(first.done.wait(), 60)
    finally:
        stopping.request()
        await asyncio.wait_for(task, 60)


async def assigned(hub: ServedHub) -> dict[str, str | None]:
    listed = await hub.read("instances", "list")
    return {each["id"]: each["assigned"] for each in listed["items"]}


async def test_new_instances_get_the_first_version_and_others_nothing() -> None:
    async with ServedHub() as hub:
        await hub.add(instance("edge-1"), instance("edge-2"), instance("foreign"))

        async with running(hub, "edge-1", "edge-2") as run:
            pass

        assert await assigned(hub) == {"edge-1": "edge@1", "edge-2": "edge@1", "foreign": None}
        assert [each.text for each in run.activities] == ["saves the configuration edge"]


async def test_an_instance_is_waited_for_until_it_is_online() -> None:
    async with ServedHub() as hub:
        await hub.add(instance("edge-1", State.OFFLINE))

        async with running(hub, "edge-1") as run:
            await asyncio.wait_for(run.clock.until_asleep(), 60)
            before = await assigned(hub)
            await hub.add(instance("edge-1", State.ONLINE))
            await hub.registry.refresh("edge-1")
            await run.attempt_again()

        assert before == {"edge-1": None}
        assert await assigned(hub) == {"edge-1": "edge@1"}


async def test_what_a_user_has_assigned_stays_and_newcomers_follow_most() -> None:
    async with ServedHub() as hub:
        await hub.push("edge", TEXT, OTHER)
        await hub.push("special", TEXT)
        await hub.add(*(instance(f"edge-{number}") for number in range(1, 6)))
        for edge, version in (("edge-1", "edge@2"), ("edge-2", "edge@2"), ("edge-3", "special@1")):
            await hub.run("instances", "assign", edge, version)

        async with running(hub, "edge-1", "edge-3", "edge-4") as run:
            pass

        assert await assigned(hub) == {
            "edge-1": "edge@2",
            "edge-2": "edge@2",
            "edge-3": "special@1",
            "edge-4": "edge@2",
            "edge-5": None,
        }
        assert run.activities == []

"""The activities of instances."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from sentinel.cli.up.activity import Activity
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.hub_poller import HubPoller
from sentinel.cli.up.instance_activities import InstanceActivities, describe_changes
from sentinel.core.hub.states import State
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START, ManualClock
from tests.cli.hub.served_hub import ServedHub
from tests.cli.up.instances.documents import make_instance
from tests.support.hub.store_records import instance

EDGE = make_instance("edge-1", zone="a")


def texts(before: InstanceDocument | None, now: InstanceDocument) -> list[str]:
    return [text for text, _ in describe_changes(before, now)]


def test_nothing_is_said_of_an_instance_that_stays_as_it_is() -> None:
    later = msgspec.structs.replace(EDGE, last_seen_time=START + timedelta(seconds=2), uptime_seconds=2)

    assert texts(EDGE, later) == []


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, make_instance("x", zone="a", running=None, assigned=None), ["has registered in zone a"]),
        (None, make_instance("x"), ["has registered", "runs edge@1"]),
        (EDGE, make_instance("x", state=State.OFFLINE), ["is offline"]),
        (
            EDGE,
            make_instance("x", running="edge@1", assigned="edge@2", in_sync=False),
            ["is assigned edge@2"],
        ),
        (
            make_instance("x", running="edge@1", assigned="edge@2", in_sync=False),
            make_instance("x", running="edge@2", assigned="edge@2"),
            ["runs edge@2"],
        ),
        (
            EDGE,
            make_instance("x", running="edge@1", in_sync=False, message="the file was changed"),
            ["is out of sync with edge@1", "says: the file was changed"],
        ),
        (EDGE, make_instance("x", state=State.DRAINING), ["is draining"]),
    ],
)
def test_each_change_is_said(before: InstanceDocument | None, now: InstanceDocument, expected: list[str]) -> None:
    assert texts(before, now) == expected


async def test_the_poller_shows_instances_and_their_changes() -> None:
    clock, dashboard, activities = ManualClock(), DashboardState(started=START), list[Activity]()
    stopping = Stopping()
    async with ServedHub() as hub:
        shown = InstanceActivities(dashboard=dashboard, on_activity=activities.append, clock=clock)
        poller = HubPoller([shown.poll], connect=hub.connection, clock=clock)
        task = asyncio.create_task(poller.run(stopping))
        for added in ((), (instance("edge-1"),), (instance("edge-1", State.REMOVED),)):
            await asyncio.wait_for(clock.until_asleep(), 60)
            await hub.add(*added)
            await hub.registry.refresh("edge-1")
            await clock.advance(timedelta(seconds=1))
        await asyncio.wait_for(clock.until_asleep(), 60)
        stopping.request()
        await asyncio.wait_for(task, 60)

    assert [(each.source, each.name, each.text) for each in activities] == [
        ("hub", "edge-1", "has registered"),
        ("hub", "edge-1", "has left the fleet"),
    ]
    assert dashboard.instances.total == 0

"""What the live view and the activities say about deployments."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.cli.up.activity import Activity, ActivityLevel
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.deployment_activities import DeploymentActivities
from sentinel.cli.up.hub_poller import HubPoller
from sentinel.core.hub.rollout_state import ReportedState
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START, ManualClock
from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.rest_hub import VALID
from tests.hub.rest.running_rollouts import deployment_id
from tests.support.hub.store_records import instance


async def test_the_newest_deployment_is_shown_and_its_changes_are_said() -> None:
    clock, dashboard, activities = ManualClock(), DashboardState(started=START), list[Activity]()
    stopping = Stopping()
    async with ServedHub() as hub:
        await hub.push("edge", VALID)
        await hub.add(instance("a"), instance("b"))
        shown = DeploymentActivities(dashboard=dashboard, on_activity=activities.append, clock=clock)
        poller = HubPoller([shown.poll], connect=hub.connection, clock=clock)

        async def poll() -> None:
            await clock.advance(timedelta(seconds=1))
            await asyncio.wait_for(clock.until_asleep(), 60)

        task = asyncio.create_task(poller.run(stopping))
        await asyncio.wait_for(clock.until_asleep(), 60)
        before = dashboard.deployment
        await hub.deploy("edge", 1, ids=["a", "b"], strategy="all_at_once")
        await poll()
        during = dashboard.deployment
        await hub.rollouts.report(deployment_id(1), ReportedState.FAILED, "a", "b", message="no disk")
        await poll()
        await poll()
        stopping.request()
        await asyncio.wait_for(task, 60)

    said = {each.text: each for each in activities}
    assert before is None
    assert during is not None
    assert during.deployment.id == deployment_id(1)
    assert {each.name for each in activities} == {"edge@1"}
    assert activities[0].text == "edge@1 to 2 instances in 1 batch, all_at_once"
    assert said["a, b: failed: no disk"].level is ActivityLevel.ERROR
    assert said["batch 1 of 1: a, b"].level is ActivityLevel.INFO
    assert len(said) == len(activities), "nothing is said twice"

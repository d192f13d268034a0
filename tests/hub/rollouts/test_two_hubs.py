"""Two hubs on one database take a deployment forward together."""

from __future__ import annotations

import asyncio

from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.testing.hub_agent import Behavior
from tests.support.hub.deployments import (
    assigned,
    complete,
    create,
    fleet,
    go_back,
    logged,
    names,
    request,
    running,
    status,
    told,
    until_over,
)
from tests.support.hub.in_process import SECOND, USER, InProcessHub


async def test_agents_of_both_hubs_take_part(hub: InProcessHub, other: InProcessHub) -> None:
    agents = [*await fleet(hub, "edge-1", "edge-2"), *await fleet(other, "edge-3", "edge-4")]
    async with running(agents):
        deployment_id = await create(other, request("edge-1", "edge-3", "edge-2", "edge-4"))
        record = await until_over(hub, deployment_id)

    assert status(record) == (RolloutState.COMPLETED, RollbackState.NONE)
    assert [each.running_version for each in agents] == ["api@2"] * 4


async def test_a_failure_at_one_hub_brings_back_agents_of_the_other(
    hub: InProcessHub, other: InProcessHub
) -> None:
    agents = [*await fleet(hub, "edge-1"), *await fleet(other, "edge-2")]
    async with running(agents, {"edge-2": Behavior(fails=["api@2"])}):
        deployment_id = await create(hub, request(*names(2)))
        record = await until_over(hub, deployment_id)

    assert status(record) == (RolloutState.FAILED, RollbackState.COMPLETED)
    assert [each.running_version for each in agents] == ["api@1"] * 2


async def test_an_agent_may_move_to_the_other_hub_meanwhile(hub: InProcessHub, other: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))
    await agent.ack_deployment(deployment_id)
    moved = await other.registered("edge-1")
    events = await moved.subscribe()

    record = await hub.built.rollouts.rollback(USER, deployment_id)

    assert (record.rollout.state, record.rollout.rollback) == (RolloutState.ABORTED, RollbackState.RUNNING)
    assert (await told(events)).rollback
    assert await go_back(moved, deployment_id) == "stop"
    await until_over(other, deployment_id)
    assert await assigned(hub, "edge-1") == ["api@1"]


async def test_both_hubs_let_time_pass_and_each_step_happens_once(hub: InProcessHub, other: InProcessHub) -> None:
    agents = [*await fleet(hub, "edge-1"), *await fleet(other, "edge-2")]
    deployment_id = await create(hub, request(*names(2), delay=30 * SECOND))
    await complete(agents[0], deployment_id)
    await hub.clock.advance(31 * SECOND)
    await complete(agents[1], deployment_id)
    await until_over(hub, deployment_id)

    told_of = [
        (document["instance_id"], document["state"])
        for kind, document in await logged(hub, deployment_id)
        if kind == "deployment.instance"
    ]
    assert told_of == [(name, state) for name in names(2) for state in ("pending", "in_progress", "completed")]


async def test_reports_at_both_hubs_at_once_all_count(hub: InProcessHub, other: InProcessHub) -> None:
    agents = [*await fleet(hub, *names(6)), *await fleet(other, *[f"west-{number}" for number in range(6)])]
    ids = [each.instance_id for each in agents]
    deployment_id = await create(hub, request(*ids, size=12))

    await asyncio.gather(*(complete(each, deployment_id) for each in agents))

    record = await until_over(other, deployment_id)
    assert record.counts == {"completed": 12}

"""Deployments with agents that a test plays step by step: seed flows 2 and 3, and what interrupts them."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest

from sentinel.core.hub.deployment import OfflinePolicy, Rolling, Strategy
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.core.hub.states import State
from sentinel.testing.hub_agent import Behavior
from sentinel.web.errors import Conflict
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.deployments import (
    States,
    assigned,
    complete,
    create,
    fleet,
    go_back,
    logged,
    names,
    request,
    rows,
    running,
    status,
    told,
    until,
    until_over,
)
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

COMPLETED = (RolloutState.COMPLETED, RollbackState.NONE)
BACK = (RolloutState.FAILED, RollbackState.COMPLETED)


async def test_a_rolling_deployment_reaches_one_agent_after_the_other(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(3))
    streams = [await agent.subscribe() for agent in agents]

    deployment_id = await create(hub, request(*names(3)))

    for position, (agent, events) in enumerate(zip(agents, streams, strict=True), 1):
        event = await told(events)
        assert (event.deployment_id, event.config_version, event.config_id) == (deployment_id, "api@2", "api")
        assert (event.batch_position, event.batch_total, event.strategy) == (position, 3, pb.ROLLING)
        assert event.deadline == int((hub.clock.now() + timedelta(minutes=5)).timestamp())
        assert not event.rollback
        assert await hub.state(agent.instance_id) is State.DEPLOYING
        assert await assigned(hub, *names(3)) == ["api@2"] * position + ["api@1"] * (3 - position)
        assert await complete(agent, deployment_id) == "stop"
        assert event.config_hash == agent.running_hash
    record = await until_over(hub, deployment_id)
    assert status(record) == COMPLETED
    assert await rows(hub, deployment_id) == dict.fromkeys(names(3), "completed")
    assert [await hub.state(each) for each in names(3)] == [State.ONLINE] * 3
    assert hub.count("hub_deployment_duration_seconds_count", strategy="rolling", outcome="completed") == 1


async def test_a_failed_instance_goes_back_and_others_are_not_touched(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    events, others = await first.subscribe(), await second.subscribe()
    deployment_id = await create(hub, request(*names(2)))
    assert (await told(events)).config_version == "api@2"
    await first.ack_deployment(deployment_id)

    failed = await first.report_deployment_status(
        deployment_id, States.FAILED, message="health check failed after 3 attempts"
    )

    assert failed.next_action == "rollback"
    event = await told(events)
    assert (event.deployment_id, event.config_version, event.rollback) == (deployment_id, "api@1", True)
    assert await hub.state("edge-1") is State.DEPLOYING
    assert await go_back(first, deployment_id) == "stop"
    record = await until_over(hub, deployment_id)
    assert status(record) == BACK
    assert record.rollout.reason == "1 of 2 instances failed"
    assert await rows(hub, deployment_id) == {"edge-1": "rolled_back", "edge-2": "skipped"}
    assert await assigned(hub, "edge-1", "edge-2") == ["api@1", "api@1"]
    others.cancel()
    assert hub.count("hub_deployment_failures_total") == 1


async def test_the_log_says_how_deployment_and_rollback_end(
    hub: InProcessHub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sentinel")
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))
    await agent.ack_deployment(deployment_id)
    await agent.report_deployment_status(deployment_id, States.FAILED)
    await go_back(agent, deployment_id)

    await until_over(hub, deployment_id)

    lines = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "deployment.state"]
    assert [(each["deployment"], each["state"], each["rollback"]) for each in lines] == [
        (deployment_id, "running", "none"),
        (deployment_id, "failed", "running"),
        (deployment_id, "failed", "completed"),
    ]


async def test_events_of_a_deployment_tell_its_story(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))
    await agent.ack_deployment(deployment_id)
    await agent.report_deployment_status(deployment_id, States.FAILED, message="no", error_details="line 3")
    await go_back(agent, deployment_id)

    await until_over(hub, deployment_id)

    story = await logged(hub, deployment_id)
    shown = [
        (kind, document["state"], document.get("rollback", document.get("message"))) for kind, document in story
    ]
    assert shown == [
        ("deployment.instance", "pending", ""),
        ("deployment.state", "running", "none"),
        ("deployment.instance", "in_progress", ""),
        ("deployment.instance", "failed", "no: line 3"),
        ("deployment.state", "failed", "running"),
        ("deployment.instance", "rolled_back", "no: line 3"),
        ("deployment.state", "failed", "completed"),
    ]
    assert story[0][1]["from"] == "api@1"
    assert story[-1][1]["counts"] == {"rolled_back": 1}


async def test_an_agent_without_a_stream_learns_it_by_heartbeats(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))

    [action] = (await agent.heartbeat()).actions
    again = (await agent.heartbeat()).actions

    assert action.type == pb.PendingAction.APPLY_CONFIG
    assert dict(action.params)["config_version"] == "api@2"
    assert [each.action_id for each in again] == [action.action_id]
    await agent.ack_deployment(deployment_id)
    assert not (await agent.heartbeat()).actions
    await hub.clock.advance(61 * SECOND)
    [action] = (await agent.heartbeat()).actions
    assert action.type == pb.PendingAction.REPORT_STATUS
    await complete(agent, deployment_id)
    assert not (await agent.heartbeat()).actions
    assert status(await until_over(hub, deployment_id)) == COMPLETED


async def test_seven_instances_in_batches_of_three(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(7))
    async with running(agents):
        deployment_id = await create(hub, request(*names(7), size=3))
        record = await until_over(hub, deployment_id)

    assert status(record) == COMPLETED
    found = await hub.store.deployment_rows(deployment_id, limit=10)
    assert [each.row.batch for each in found] == [1, 1, 1, 2, 2, 2, 3]
    assert [each.running_version for each in agents] == ["api@2"] * 7


async def test_a_deployment_of_forty_batches(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(40))
    async with running(agents):
        deployment_id = await create(hub, request(*names(40)))
        record = await until_over(hub, deployment_id)

    assert status(record) == COMPLETED
    assert (record.rollout.batch, record.batches) == (40, 40)


async def test_one_failure_below_a_threshold_of_two_is_tolerated(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(4))
    async with running(agents, {"edge-2": Behavior(fails=["api@2"])}):
        deployment_id = await create(hub, request(*names(4), threshold=2))
        record = await until_over(hub, deployment_id)

    assert status(record) == COMPLETED
    assert record.counts == {"completed": 3, "failed": 1}
    assert await assigned(hub, *names(4)) == ["api@2", "api@1", "api@2", "api@2"]


async def test_every_instance_goes_back_to_the_version_it_ran(hub: InProcessHub) -> None:
    one, three, none = "edge-1", "edge-2", "edge-3"
    agents = [
        *await fleet(hub, one),
        *await fleet(hub, three, running="api@3"),
        *await fleet(hub, none, running=None),
        *await fleet(hub, "edge-4", "edge-5"),
    ]
    async with running(agents, {"edge-4": Behavior(fails=["api@2"])}):
        deployment_id = await create(hub, request(*names(5)))
        record = await until_over(hub, deployment_id)

    assert status(record) == BACK
    assert await assigned(hub, *names(5)) == ["api@1", "api@3", "", "api@1", "api@1"]
    assert [each.running_version for each in agents[:2]] == ["api@1", "api@3"]
    assert (await rows(hub, deployment_id))["edge-5"] == "skipped"


async def test_a_rejection_counts_as_a_failure_and_is_not_rolled_back(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(2))
    async with running(agents, {"edge-1": Behavior(rejects="maintenance")}):
        deployment_id = await create(hub, request(*names(2)))
        record = await until_over(hub, deployment_id)

    assert status(record) == BACK
    assert await rows(hub, deployment_id) == {"edge-1": "rejected", "edge-2": "skipped"}
    assert (await logged(hub, deployment_id))[2][1]["message"] == "maintenance"


async def test_all_at_once_does_not_go_back_by_itself(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(3))
    async with running(agents, {"edge-1": Behavior(fails=["api@2"])}):
        deployment_id = await create(hub, request(*names(3), strategy=Strategy.ALL_AT_ONCE))
        record = await until_over(hub, deployment_id)
        assert status(record) == (RolloutState.FAILED, RollbackState.NONE)
        assert await assigned(hub, *names(3)) == ["api@1", "api@2", "api@2"]

        await hub.built.rollouts.rollback(USER, deployment_id)
        record = await until_over(hub, deployment_id)

    assert status(record) == BACK
    assert await assigned(hub, *names(3)) == ["api@1"] * 3


async def test_an_abort_lets_the_batch_finish_and_skips_the_rest(hub: InProcessHub) -> None:
    first, second, _ = await fleet(hub, *names(3))
    deployment_id = await create(hub, request(*names(3), size=2))
    await complete(first, deployment_id)

    record = await hub.built.rollouts.abort(USER, deployment_id)

    assert (record.rollout.state, record.rollout.is_over) == (RolloutState.ABORTED, False)
    await complete(second, deployment_id)
    record = await until_over(hub, deployment_id)
    assert await rows(hub, deployment_id) == {"edge-1": "completed", "edge-2": "completed", "edge-3": "skipped"}
    assert hub.count("hub_deployment_failures_total") == 0
    assert hub.count("hub_deployment_duration_seconds_count", strategy="rolling", outcome="aborted") == 1
    with pytest.raises(Conflict, match="aborted"):
        await hub.built.rollouts.abort(USER, deployment_id)


async def test_a_paused_deployment_begins_no_batch_until_it_is_resumed(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    deployment_id = await create(hub, request(*names(2)))
    await hub.built.rollouts.pause(USER, deployment_id)
    await complete(first, deployment_id)
    assert await hub.state("edge-2") is State.ONLINE

    await hub.built.rollouts.resume(USER, deployment_id)

    assert await hub.state("edge-2") is State.DEPLOYING
    await complete(second, deployment_id)
    assert status(await until_over(hub, deployment_id)) == COMPLETED


async def test_the_next_batch_waits_for_the_delay(hub: InProcessHub) -> None:
    first, _ = await fleet(hub, *names(2))
    deployment_id = await create(hub, request(*names(2), delay=30 * SECOND))
    await complete(first, deployment_id)
    await hub.clock.advance(29 * SECOND)
    assert (await rows(hub, deployment_id))["edge-2"] == "waiting"

    await hub.clock.advance(2 * SECOND)

    await until(hub, deployment_id, lambda record: record.rollout.batch == 2)


async def test_an_instance_that_does_not_answer_times_out(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1", strategy=Strategy.ALL_AT_ONCE))

    for _ in range(6):
        await hub.clock.advance(60 * SECOND)
        await agent.heartbeat()

    record = await until_over(hub, deployment_id)
    assert status(record) == (RolloutState.FAILED, RollbackState.NONE)
    assert await rows(hub, deployment_id) == {"edge-1": "timed_out"}
    assert await assigned(hub, "edge-1") == ["api@1"]
    assert await hub.state() is State.ONLINE


async def test_an_instance_that_goes_offline_in_its_batch_has_failed(hub: InProcessHub) -> None:
    [_] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1", strategy=Strategy.ALL_AT_ONCE))

    await hub.clock.advance(100 * SECOND)

    await until_over(hub, deployment_id)
    assert await rows(hub, deployment_id) == {"edge-1": "failed"}


@pytest.mark.parametrize(
    ("policy", "state", "result", "assignment"),
    [
        (OfflinePolicy.LATER, "skipped", COMPLETED, "api@2"),
        (OfflinePolicy.SKIP, "skipped", COMPLETED, "api@1"),
        (OfflinePolicy.FAIL, "failed", (RolloutState.FAILED, RollbackState.NONE), "api@1"),
    ],
)
async def test_an_instance_that_is_offline_is_treated_by_policy(
    hub: InProcessHub,
    policy: OfflinePolicy,
    state: str,
    result: tuple[RolloutState, RollbackState],
    assignment: str,
) -> None:
    offline, online = await fleet(hub, *names(2))
    await hub.clock.advance(80 * SECOND)
    await online.heartbeat()
    await hub.clock.advance(20 * SECOND)
    assert await hub.state("edge-1") is State.OFFLINE

    asked = request(*names(2), strategy=Strategy.ALL_AT_ONCE, offline=policy)
    deployment_id = await create(hub, asked)
    await complete(online, deployment_id)

    assert status(await until_over(hub, deployment_id)) == result
    assert (await rows(hub, deployment_id))["edge-1"] == state
    assert await assigned(hub, "edge-1") == [assignment]
    assert (await offline.heartbeat()).latest_config_version == assignment


async def test_an_instance_that_is_drained_is_skipped(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    deployment_id = await create(hub, request(*names(2), size=2))

    await hub.built.instances.drain(USER, "edge-1", "rebuilt")
    await complete(second, deployment_id)

    assert status(await until_over(hub, deployment_id)) == COMPLETED
    assert await rows(hub, deployment_id) == {"edge-1": "skipped", "edge-2": "completed"}
    assert [each.type for each in (await first.heartbeat()).actions] == [pb.PendingAction.DRAIN]


async def test_an_instance_must_stay_healthy_for_a_while(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1", rolling=Rolling(min_healthy_time=20 * SECOND)))
    await complete(agent, deployment_id)
    assert await rows(hub, deployment_id) == {"edge-1": "validating"}

    await hub.clock.advance(10 * SECOND)
    await agent.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED))
    await hub.clock.advance(15 * SECOND)
    assert await rows(hub, deployment_id) == {"edge-1": "validating"}
    await agent.heartbeat()
    await hub.clock.advance(21 * SECOND)

    assert status(await until_over(hub, deployment_id)) == COMPLETED


async def test_reports_about_something_else_are_not_found(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    deployment_id = await create(hub, request("edge-1"))

    for strange in ("", "nothing", "a\0b"):
        async with refused(grpc.StatusCode.NOT_FOUND):
            await first.ack_deployment(strange)
    async with refused(grpc.StatusCode.NOT_FOUND):
        await second.report_deployment_status(deployment_id, States.COMPLETED)
    assert await rows(hub, deployment_id) == {"edge-1": "pending"}


async def test_late_and_contradictory_reports_change_nothing(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))
    await complete(agent, deployment_id)
    before = await until_over(hub, deployment_id)

    answers = [
        await agent.report_deployment_status(deployment_id, States.FAILED),
        await agent.report_deployment_status(deployment_id, States.ROLLED_BACK, rollback=True),
        await agent.report_deployment_status(deployment_id, 99),  # type: ignore[arg-type]  # of a later version
    ]

    assert [(each.acknowledged, each.next_action) for each in answers] == [(True, "stop")] * 3
    assert await hub.store.deployment(deployment_id) == before

"""Which instances a deployment gets: those that are free, and new ones."""

from __future__ import annotations

import asyncio

import grpc
import msgspec
import pytest

from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.ports.audit import AuditQuery
from sentinel.web.errors import Conflict, Invalid, NotFound, Unprocessable
from sentinel.web.idempotency import IdempotencyKey
from tests.support.hub.deployments import (
    VERSIONS,
    States,
    assigned,
    complete,
    create,
    fleet,
    go_back,
    names,
    request,
    rows,
    running,
    status,
    told,
    until,
    until_over,
)
from tests.support.hub.in_process import USER, InProcessHub, named, refused


async def test_a_busy_instance_is_refused_and_can_be_waited_for(hub: InProcessHub) -> None:
    first, second, third = await fleet(hub, *names(3))
    one = await create(hub, request("edge-1", "edge-2"))
    with pytest.raises(Conflict, match=f"{one} is in progress on the instance edge-2"):
        await create(hub, request("edge-2", "edge-3", version=3))

    two = await create(hub, request("edge-2", "edge-3", version=3, queue=True))
    with pytest.raises(Conflict, match=two):
        await create(hub, request("edge-3"))

    assert await rows(hub, two) == {"edge-2": "waiting", "edge-3": "waiting"}
    for agent in (first, second):
        await complete(agent, one)
    record = await until(hub, two, lambda record: record.rollout.state is RolloutState.RUNNING)
    assert record.rollout.batch == 1
    for agent in (second, third):
        await complete(agent, two)
    await until_over(hub, two)
    assert await assigned(hub, *names(3)) == ["api@2", "api@3", "api@3"]


async def test_those_that_have_waited_longer_come_first(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    one = await create(hub, request("edge-1"))
    two = await create(hub, request("edge-1", version=3, queue=True))
    three = await create(hub, request("edge-1", version=1, queue=True))

    order = []
    for deployment_id in (one, two, three):
        await until(hub, deployment_id, lambda record: record.rollout.state is RolloutState.RUNNING)
        order.append(await assigned(hub, "edge-1"))
        await complete(agent, deployment_id)

    assert order == [["api@2"], ["api@3"], ["api@1"]]


async def test_a_free_instance_is_kept_for_a_deployment_that_waits(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    one = await create(hub, request("edge-1"))
    two = await create(hub, request("edge-1", "edge-2", version=3, size=2, queue=True))
    three = await create(hub, request("edge-2", version=1, queue=True))

    await complete(first, one)
    await until(hub, two, lambda record: record.rollout.state is RolloutState.RUNNING)
    meanwhile = await rows(hub, three)
    for agent in (first, second):
        await complete(agent, two)
    await until(hub, three, lambda record: record.rollout.state is RolloutState.RUNNING)

    assert meanwhile == {"edge-2": "waiting"}
    assert await rows(hub, two) == {"edge-1": "completed", "edge-2": "completed"}


async def test_a_rollback_by_hand_needs_its_instances(hub: InProcessHub) -> None:
    [agent] = await fleet(hub, "edge-1")
    one = await create(hub, request("edge-1"))
    await complete(agent, one)
    await until_over(hub, one)
    two = await create(hub, request("edge-1", version=3))

    with pytest.raises(Conflict, match=f"{two} has the instance edge-1"):
        await hub.built.rollouts.rollback(USER, one)


async def test_a_retry_is_for_those_whose_attempt_failed(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    one = await create(hub, request(*names(2), strategy=Strategy.ALL_AT_ONCE))
    with pytest.raises(Conflict, match="not over"):
        await hub.built.rollouts.retry(USER, one, key=None)
    await complete(first, one)
    await second.report_deployment_status(one, States.FAILED)
    await until_over(hub, one)

    two = (await hub.built.rollouts.retry(USER, one, key=None)).id

    assert (await hub.built.rollouts.get(two)).retry_of == one
    assert await rows(hub, two) == {"edge-2": "pending"}
    await complete(second, two)
    assert status(await until_over(hub, two)) == (RolloutState.COMPLETED, RollbackState.NONE)
    with pytest.raises(Conflict, match="no instance"):
        await hub.built.rollouts.retry(USER, two, key=None)


async def test_a_retry_leaves_out_those_that_have_left(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(2))
    one = await create(hub, request(*names(2), strategy=Strategy.ALL_AT_ONCE))
    for agent in agents:
        await agent.report_deployment_status(one, States.FAILED)
    await until_over(hub, one)
    await hub.built.instances.drain(USER, "edge-1", "")

    two = (await hub.built.rollouts.retry(USER, one, key=None)).id

    assert await rows(hub, two) == {"edge-2": "pending"}


async def test_what_users_do_is_in_the_audit(hub: InProcessHub) -> None:
    await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))
    for act in (hub.built.rollouts.pause, hub.built.rollouts.resume, hub.built.rollouts.abort):
        await act(USER, deployment_id)
    with pytest.raises(Conflict):
        await hub.built.rollouts.abort(USER, deployment_id)

    found = await hub.backend.audit.find(AuditQuery(limit=100))

    done = [(each.action, each.resource_id) for each in reversed(found) if each.kind == "deployment"]
    assert done == [(action, deployment_id) for action in ("create", "pause", "resume", "abort")]


async def test_a_new_instance_gets_the_newest_version_that_matches_it(hub: InProcessHub) -> None:
    agents = await fleet(hub, *names(2), labels={"zone": "a"})
    async with running(agents):
        for version in (3, 2):
            await until_over(hub, await create(hub, request(selector="zone=a", version=version)))

    new = await hub.agent("edge-8", labels={"zone": "a"}).register()
    other = await hub.agent("edge-9", labels={"zone": "b"}).register()

    assert (new.config_version, other.config_version) == ("api@2", "")
    assert (await hub.agent("edge-8", labels={"zone": "a"}).register()).config_version == "api@2"
    await hub.built.instances.unassign(USER, "edge-8")
    assert (await hub.agent("edge-8", labels={"zone": "a"}).register()).config_version == ""


async def test_what_was_rolled_back_is_not_given_to_new_instances(hub: InProcessHub) -> None:
    agents = await fleet(hub, "edge-1", labels={"zone": "a"})
    async with running(agents):
        deployment_id = await create(hub, request(selector="zone=a"))
        await until_over(hub, deployment_id)
        await hub.built.rollouts.rollback(USER, deployment_id)
        await until_over(hub, deployment_id)

    assert (await hub.agent("edge-9", labels={"zone": "a"}).register()).config_version == ""


async def test_nothing_is_assigned_by_hand_during_a_deployment(hub: InProcessHub) -> None:
    await fleet(hub, "edge-1")
    deployment_id = await create(hub, request("edge-1"))

    with pytest.raises(Conflict, match=deployment_id):
        await hub.built.instances.assign(USER, "edge-1", named("api@3"))
    assert (await hub.instance()).life.deployment_id == deployment_id


async def test_an_assignment_by_hand_before_the_batch_is_what_it_goes_back_to(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    events = await second.subscribe()
    deployment_id = await create(hub, request(*names(2), threshold=2))
    await hub.assign("api@3", "edge-2")
    await complete(first, deployment_id)
    await told(events)

    await second.report_deployment_status(deployment_id, States.FAILED)

    assert await assigned(hub, "edge-2") == ["api@3"]


async def test_a_configuration_that_may_be_needed_is_not_deleted(hub: InProcessHub) -> None:
    await hub.save_versions("web", "a")
    agents = await fleet(hub, *names(2), running="web@1")
    deployment_id = await create(hub, request(*names(2), size=2, strategy=Strategy.ALL_AT_ONCE))

    for config_id in ("api", "web"):
        with pytest.raises(Conflict, match=r"being deployed|assigned"):
            await hub.built.configs.remove(USER, config_id)
    for agent in agents:
        await complete(agent, deployment_id)
    await until_over(hub, deployment_id)
    await hub.built.configs.remove(USER, "web")


async def test_what_cannot_be_deployed_is_refused(hub: InProcessHub) -> None:
    await fleet(hub, "edge-1")
    await hub.save_versions(
        "edge", VERSIONS[0].replace('protocol "http"', 'tls { cert secret="c"; key secret="k" }')
    )

    with pytest.raises(NotFound, match='version "api@9"'):
        await create(hub, request("edge-1", version=9))
    with pytest.raises(Invalid, match="either ids or a selector"):
        await create(hub, request())
    with pytest.raises(Unprocessable, match="no instance edge-9"):
        await create(hub, request("edge-9"))
    with pytest.raises(Unprocessable, match="matches no instance"):
        await create(hub, request(selector="zone=x"))
    with pytest.raises(Unprocessable, match="edge@1 has 2 errors") as missing:
        await create(hub, msgspec.structs.replace(request("edge-1", version=1), config_id="edge"))
    assert "missing-secret" in repr(missing.value.errors)
    assert await hub.store.count_deployments() == 0


async def test_a_plan_says_what_a_deployment_would_do(hub: InProcessHub) -> None:
    await fleet(hub, "edge-1", running="api@2")
    await fleet(hub, "edge-2", "edge-3")

    planned = await hub.built.rollouts.plan(request(*names(3), version=3, size=2))

    assert [[facts.instance_id for facts in batch] for batch in planned.plan.batches] == [
        ["edge-1", "edge-2"],
        ["edge-3"],
    ]
    assert "--- api@1\n+++ api@3\n" in planned.diff
    assert not planned.restart_required
    assert (planned.problems, planned.version_problems) == ([], [])
    await create(hub, request("edge-2"))
    planned = await hub.built.rollouts.plan(request(*names(3), version=3))
    assert [each.field for each in planned.problems] == ["targets"]


async def test_a_request_with_a_key_is_carried_out_once(hub: InProcessHub) -> None:
    await fleet(hub, *names(2))
    key = IdempotencyKey("ops", "key", "1")

    created = [await hub.built.rollouts.create(USER, request("edge-1"), key=key) for _ in range(2)]

    assert [each.is_replayed for each in created] == [False, True]
    assert created[0].body == created[1].body
    assert created[0].id == created[1].id
    assert await hub.store.count_deployments() == 1


async def test_requests_with_a_key_at_the_same_time_are_carried_out_once(hub: InProcessHub) -> None:
    await fleet(hub, "edge-1")
    key = IdempotencyKey("ops", "key", "1")

    created = await asyncio.gather(
        *(hub.built.rollouts.create(USER, request("edge-1"), key=key) for _ in range(3))
    )

    assert sorted(each.is_replayed for each in created) == [False, True, True]
    assert len({each.id for each in created}) == 1


async def test_a_version_can_be_fetched_after_it_was_rolled_back(hub: InProcessHub) -> None:
    first, second = await fleet(hub, *names(2))
    deployment_id = await create(hub, request(*names(2)))
    await first.report_deployment_status(deployment_id, States.FAILED)
    await go_back(first, deployment_id)
    await until_over(hub, deployment_id)

    assert (await first.get_config("api@2")).version == "api@2"
    async with refused(grpc.StatusCode.PERMISSION_DENIED):
        await second.get_config("api@2")

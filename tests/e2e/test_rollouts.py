"""Rollouts over twenty real agents, each beside its proxy, with a real hub."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from sentinel.testing.hub_agent import Behavior, HubAgent
from tests.e2e.edge_fleet import CONFIG, EdgeFleet

AGENTS = 20
IN_FLIGHT = ("pending", "in_progress", "validating")
STEPS = ["pending", "in_progress", "validating", "completed"]
CANARY = {"instances": 1, "duration": "6s", "interval": "1s", "min_requests": 20}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EdgeFleet]:
    """All run `base`."""
    options = ("--set=heartbeat_interval=1s", "--set=offline_threshold=60s")
    async with EdgeFleet(tmp_path_factory.mktemp("fleet"), AGENTS, *options) as fleet:
        await fleet.run("base", fleet.edges)
        yield fleet


def canary(**fields: object) -> dict[str, Any]:
    """A deployment of which the first instance is the canary."""
    return {"strategy": "canary", "canary": CANARY | fields, "rolling": {"batch_size": 10, "batch_delay": "0s"}}


def most_in_flight(story: Sequence[tuple[str, str]]) -> int:
    """How many instances were in flight at the same time."""
    now: set[str] = set()
    most = 0
    for instance_id, state in story:
        now = now | {instance_id} if state in IN_FLIGHT else now - {instance_id}
        most = max(most, len(now))
    return most


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_rolling_deployment_goes_from_one_agent_to_the_next(fleet: EdgeFleet) -> None:
    ids = fleet.ids(1, 3)
    await fleet.run("base", ids)
    version = await fleet.version("flow-2")
    methods = ("AckDeployment", "GetConfig", "ReportDeploymentStatus")
    before = await fleet.calls(*methods)

    named = [word for each in ids for word in ("--instance", each)]
    shown = await fleet.command("deploy", f"{CONFIG}@{version}", *named, "--batch-delay", "0s", "--wait")

    after = await fleet.calls(*methods)
    [deployment] = (await fleet.hub.call("GET", "deployments?size=1"))["items"]
    assert shown.code == 0, shown
    assert f"{CONFIG}@{version} to 3 instances in 3 batches, rolling" in shown.stdout
    assert [line.partition(" ")[2] for line in shown.stdout.splitlines()][-1] == "completed"
    assert await fleet.story(deployment["id"]) == [(each, state) for each in ids for state in STEPS]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3, 9]
    assert await fleet.serving(ids) == dict.fromkeys(ids, "flow-2")


async def test_a_failed_agent_goes_back_and_the_next_is_not_touched(fleet: EdgeFleet) -> None:
    ids = fleet.ids(1, 2)
    await fleet.run("base", ids)
    fleet.application.ill |= {("flow-3", "edge-1")}
    version = await fleet.version("flow-3")
    untouched = fleet.edges["edge-2"].config.stat().st_mtime_ns

    named = [word for each in ids for word in ("--instance", each)]
    shown = await fleet.command("deploy", f"{CONFIG}@{version}", *named, "--wait")

    [deployment] = (await fleet.hub.call("GET", "deployments?size=1"))["items"]
    assert shown.code == 1
    assert "edge-1: failed: health check failed after 3 attempts" in shown.stdout
    assert "edge-2: skipped" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith("rollback completed")
    assert (deployment["state"], deployment["rollback"]) == ("failed", "completed")
    assert await fleet.rows(deployment["id"]) == {"edge-1": "rolled_back", "edge-2": "skipped"}
    assert await fleet.serving(ids) == dict.fromkeys(ids, "base")
    assert fleet.edges["edge-2"].config.stat().st_mtime_ns == untouched


async def test_the_words_of_the_proxy_reach_the_user(fleet: EdgeFleet) -> None:
    await fleet.run("base", ["edge-1"])
    text = fleet.text("no-files", more='route "files" { matches { path "/f" }; static-files { root "/nowhere" } }')
    saved = await fleet.hub.call("POST", f"configs/{CONFIG}/versions", {"content": text})

    shown = await fleet.command("deploy", f"{CONFIG}@{saved['version']}", "--instance", "edge-1", "--wait")

    assert shown.code == 1
    assert "/nowhere" in shown.stdout
    assert await fleet.greeting("edge-1") == "base"


async def test_seven_instances_in_batches_of_three(fleet: EdgeFleet) -> None:
    ids = fleet.ids(1, 7)
    rolling = {"batch_size": 3, "batch_delay": "0s"}
    async with fleet.application.hold("sevens") as released:
        deployment_id = await fleet.deploy("sevens", ids, rolling=rolling)
        held = await fleet.until_held(3)
        states = await fleet.rows(deployment_id)
        released.set()
        ended = await fleet.until_over(deployment_id)

    found = await fleet.hub.call("GET", f"deployments/{deployment_id}/instances")
    assert held == set(ids[:3])
    assert [states[each] for each in ids] == ["validating"] * 3 + ["waiting"] * 4
    assert ended == ("completed", "none")
    assert [row["batch"] for row in found["items"]] == [1, 1, 1, 2, 2, 2, 3]
    assert most_in_flight(await fleet.story(deployment_id)) == 3
    assert await fleet.serving(ids) == dict.fromkeys(ids, "sevens")


async def test_forty_batches(fleet: EdgeFleet) -> None:
    """Twenty instances are played: the machine has room for twenty real ones."""
    played = [f"played-{number}" for number in range(1, 21)]
    real = fleet.ids(1, AGENTS)
    ids = [each for pair in zip(real, played, strict=True) for each in pair]
    async with AsyncExitStack() as stack:
        for each in played:
            agent = await stack.enter_async_context(HubAgent(fleet.hub.address, each))
            task = asyncio.create_task(agent.run(Behavior(heartbeat_interval=timedelta(seconds=1))))
            stack.push_async_callback(cancel, task)
            await fleet.hub.until_instance(each, state="online")
        deployment_id = await fleet.deploy("forty", ids)
        ended = await fleet.until_over(deployment_id)
        for each in played:
            await fleet.hub.call("DELETE", f"instances/{each}")

    found = await fleet.hub.call("GET", f"deployments/{deployment_id}")
    assert ended == ("completed", "none")
    assert found["batch"] == {"position": 40, "total": 40}
    story = await fleet.story(deployment_id)
    assert [name for name, state in story if state == "completed"] == ids
    assert most_in_flight(story) == 1
    assert await fleet.serving(real) == dict.fromkeys(real, "forty")


async def test_one_failure_of_a_threshold_of_two_is_tolerated(fleet: EdgeFleet) -> None:
    ids = fleet.ids(8, 11)
    await fleet.run("base", ids)
    fleet.application.ill |= {("one-ill", "edge-9")}

    deployment_id = await fleet.deploy("one-ill", ids, rolling={"batch_delay": "0s", "failure_threshold": 2})

    assert await fleet.until_over(deployment_id) == ("completed", "none")
    assert await fleet.rows(deployment_id) == {
        "edge-8": "completed",
        "edge-9": "failed",
        "edge-10": "completed",
        "edge-11": "completed",
    }
    assert await fleet.serving(ids) == {**dict.fromkeys(ids, "one-ill"), "edge-9": "base"}


async def test_two_failures_bring_everyone_back_to_its_own_version(fleet: EdgeFleet) -> None:
    ids = fleet.ids(8, 12)
    before = {"edge-8": "base", "edge-9": "mixed-2", "edge-10": "mixed-3", "edge-11": "mixed-2", "edge-12": "base"}
    for each, name in before.items():
        await fleet.run(name, [each])
    fleet.application.ill |= {("two-ill", "edge-9"), ("two-ill", "edge-11")}

    deployment_id = await fleet.deploy("two-ill", ids, rolling={"batch_delay": "0s", "failure_threshold": 2})

    assert await fleet.until_over(deployment_id) == ("failed", "completed")
    assert await fleet.rows(deployment_id) == {**dict.fromkeys(ids, "rolled_back"), "edge-12": "skipped"}
    assert await fleet.serving(ids) == before
    back = [name for name, state in await fleet.story(deployment_id) if state == "rolled_back"]
    assert set(back[:2]) == {"edge-9", "edge-11"}, "those that failed come first"


async def test_a_good_canary_is_followed_although_its_proxy_restarts(fleet: EdgeFleet) -> None:
    ids = fleet.ids(13, 16)
    await fleet.run("base", ids)

    async with fleet.load(ids):
        deployment_id = await fleet.deploy("good", ids, **canary())
        await fleet.until(deployment_id, lambda found: (found["analysis"] or {}).get("requests", 0) >= 5)
        await fleet.edges["edge-13"].restart_proxy()
        ended = await fleet.until_over(deployment_id)

    analysis = (await fleet.hub.call("GET", f"deployments/{deployment_id}"))["analysis"]
    assert ended == ("completed", "none")
    assert analysis["outcome"] == "success"
    assert 20 <= analysis["requests"] <= fleet.application.answered["good", "edge-13"]
    assert await fleet.serving(ids) == dict.fromkeys(ids, "good")


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        ("errors", {"metric": "error_rate", "max": 0.05}),
        ("slowness", {"metric": "latency_p99_ms", "max_vs_baseline": 5}),
    ],
)
async def test_a_bad_canary_goes_back_before_others_have_it(
    fleet: EdgeFleet, name: str, criterion: dict[str, object]
) -> None:
    ids = fleet.ids(13, 16)
    await fleet.run("base", ids)
    fleet.application.failing.add("errors")
    fleet.application.slow.add("slowness")

    async with fleet.load(ids):
        deployment_id = await fleet.deploy(name, ids, **canary(success_criteria=[criterion], duration="60s"))
        ended = await fleet.until_over(deployment_id)

    found = await fleet.hub.call("GET", f"deployments/{deployment_id}")
    assert ended == ("failed", "completed")
    assert found["reason"].startswith(f"canary analysis: {criterion['metric']}"), found["reason"]
    assert await fleet.rows(deployment_id) == {**dict.fromkeys(ids, "skipped"), "edge-13": "rolled_back"}
    assert await fleet.serving(ids) == dict.fromkeys(ids, "base")


async def test_a_canary_without_traffic_pauses_and_can_be_promoted(fleet: EdgeFleet) -> None:
    ids = fleet.ids(13, 16)
    await fleet.run("base", ids)

    deployment_id = await fleet.deploy("unused", ids, **canary(duration="2s"))
    paused = await fleet.until(deployment_id, lambda found: found["state"] in ("paused", "failed", "completed"))
    others = await fleet.serving(ids[1:])
    promoted = await fleet.command("deployments", "promote", deployment_id)

    assert await fleet.until_over(deployment_id) == ("completed", "none")
    assert paused["state"] == "paused"
    assert "inconclusive" in paused["reason"]
    assert paused["analysis"]["extensions"] == 2
    assert others == dict.fromkeys(ids[1:], "base")
    assert promoted.code == 0
    assert await fleet.serving(ids) == dict.fromkeys(ids, "unused")


async def test_an_abort_in_mid_batch_lets_it_finish_and_skips_the_rest(fleet: EdgeFleet) -> None:
    ids = fleet.ids(1, 6)
    await fleet.run("base", ids)
    async with fleet.application.hold("aborted") as released:
        deployment_id = await fleet.deploy("aborted", ids, rolling={"batch_size": 3, "batch_delay": "0s"})
        await fleet.until_held(3)
        aborted = await fleet.command("deployments", "abort", deployment_id)
        released.set()
        ended = await fleet.until_over(deployment_id)

    assert aborted.code == 0
    assert ended == ("aborted", "none")
    states = ["completed"] * 3 + ["skipped"] * 3
    assert await fleet.rows(deployment_id) == dict(zip(ids, states, strict=True))
    assert list((await fleet.serving(ids)).values()) == ["aborted"] * 3 + ["base"] * 3


async def test_a_new_agent_begins_with_what_was_deployed_to_its_labels(fleet: EdgeFleet) -> None:
    deployment_id = await fleet.deploy("labelled", [], targets={"selector": "number in (20, 30)"})
    ended = await fleet.until_over(deployment_id)

    new = await fleet.start_edge(30)
    await fleet.hub.until_instance(new.id, in_sync=True, assigned=f"{CONFIG}@{await fleet.version('labelled')}")

    assert ended == ("completed", "none")
    assert await fleet.rows(deployment_id) == {"edge-20": "completed"}
    assert await fleet.greeting(new.id) == "labelled"


async def test_of_two_deployments_of_an_instance_one_waits(fleet: EdgeFleet) -> None:
    await fleet.run("base", fleet.ids(1, 3))
    async with fleet.application.hold("holder") as released:
        holder = await fleet.deploy("holder", fleet.ids(1, 2))
        await fleet.until_held(1)
        number = str(await fleet.version("waiter"))
        words = ("deploy", f"{CONFIG}@{number}", "--instance", "edge-2", "--instance", "edge-3")
        refused = await fleet.command(*words)
        waiter = await fleet.deploy("waiter", fleet.ids(2, 3), queue=True)
        waiting = await fleet.rows(waiter)
        released.set()
        ended = [await fleet.until_over(each) for each in (holder, waiter)]

    assert (refused.code, holder in refused.stderr) == (1, True)
    assert waiting == {"edge-2": "waiting", "edge-3": "waiting"}
    assert ended == [("completed", "none")] * 2
    assert await fleet.serving(fleet.ids(1, 3)) == {"edge-1": "holder", "edge-2": "waiter", "edge-3": "waiter"}


def reached(step: str) -> Sequence[str]:
    """The states of an instance that has come so far. Agents wait for a test only when they are pending, or
    validating with a version that is held."""
    return ("in_progress", "validating") if step == "in_progress" else (step,)


async def _killed_at(fleet: EdgeFleet, step: str, name: str, ids: Sequence[str]) -> str:
    """Kill the agent of the first instance at a step of its deployment, and start it again. Return the id."""
    edge = fleet.edges[ids[0]]
    async with fleet.application.hold(name) as released:
        if step == "pending":
            edge.agent_process.send_signal(signal.SIGSTOP)
        deployment_id = await fleet.deploy(name, ids)
        if step == "completed":
            released.set()
        await fleet.until_row(deployment_id, edge.id, *reached(step))
        await edge.kill_agent()
        released.set()
        await edge.start_agent()
    return deployment_id


@pytest.mark.parametrize("step", ["pending", "in_progress", "validating", "completed"])
async def test_an_agent_killed_at_a_step_takes_the_version_all_the_same(fleet: EdgeFleet, step: str) -> None:
    ids = fleet.ids(17, 18)
    await fleet.run("base", ids)

    deployment_id = await _killed_at(fleet, step, f"agent-{step}", ids)

    assert await fleet.until_over(deployment_id) == ("completed", "none")
    story = await fleet.story(deployment_id)
    assert [each for each in story if each[1] == "completed"] == [(each, "completed") for each in ids]
    assert await fleet.serving(ids) == dict.fromkeys(ids, f"agent-{step}")


async def test_an_agent_killed_while_it_goes_back_comes_back(fleet: EdgeFleet) -> None:
    ids = fleet.ids(17, 19)
    await fleet.run("base", ids)
    fleet.application.ill |= {("agent-back", "edge-18")}
    edge = fleet.edges["edge-17"]

    deployment_id = await fleet.deploy("agent-back", ids)
    await fleet.until_row(deployment_id, "edge-17", "completed", "rolled_back")
    edge.agent_process.send_signal(signal.SIGSTOP)
    await fleet.until(deployment_id, lambda found: found["rollback"] != "none")
    await edge.kill_agent()
    await edge.start_agent()

    assert await fleet.until_over(deployment_id) == ("failed", "completed")
    states = ["rolled_back", "rolled_back", "skipped"]
    assert await fleet.rows(deployment_id) == dict(zip(ids, states, strict=True))
    assert await fleet.serving(ids) == dict.fromkeys(ids, "base")


@pytest.mark.parametrize("step", ["pending", "in_progress", "validating", "between batches", "rollback"])
async def test_a_hub_killed_at_a_step_goes_on_where_it_was(fleet: EdgeFleet, step: str) -> None:
    ids, name = fleet.ids(17, 20), f"hub-{step.replace(' ', '-')}"
    await fleet.run("base", ids)
    if step == "rollback":
        fleet.application.ill |= {(name, "edge-18")}
    rolling = {"batch_delay": "3s" if step == "between batches" else "0s"}

    async with fleet.application.hold(name) as released:
        if step == "pending":
            fleet.edges["edge-17"].agent_process.send_signal(signal.SIGSTOP)
        deployment_id = await fleet.deploy(name, ids, rolling=rolling)
        if step in ("pending", "in_progress", "validating"):
            await fleet.until_row(deployment_id, "edge-17", *reached(step))
        elif step == "between batches":
            released.set()
            await fleet.until_row(deployment_id, "edge-17", "completed")
        else:
            released.set()
            await fleet.until(deployment_id, lambda found: found["rollback"] != "none")
        await fleet.kill_hub()
        released.set()
        fleet.edges["edge-17"].agent_process.send_signal(signal.SIGCONT)
        await fleet.start_hub()
        ended = await fleet.until_over(deployment_id)

    sent = [name for name, state in await fleet.story(deployment_id) if state == "pending"]
    if step == "rollback":
        assert ended == ("failed", "completed")
        assert sent == ids[:2]
        assert await fleet.serving(ids) == dict.fromkeys(ids, "base")
    else:
        assert ended == ("completed", "none")
        assert sent == ids
        assert await fleet.serving(ids) == dict.fromkeys(ids, name)

"""Parts of the loop fail and recover, and every resource becomes ready without intervention."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from tests.support.loop.deployments import BROKERS, RABBITMQ, MakeResource
from tests.support.loop.fake_backend import State, TaskCall
from tests.support.loop.processes import ProcessLoop
from tests.support.loop.resource_loop import LoopResource, ResourceLoop

RECONNECT_TIMEOUT = timedelta(seconds=240)
"""Backoff delays the reconnection after an outage."""

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def create_held(loop: ResourceLoop, make_resource: MakeResource) -> tuple[LoopResource, TaskCall]:
    """Create a workload, and return it with the first call of its adapter, which gets no response before a
    release."""
    workload = make_resource("workloads")
    loop.backend.hold("zones", workload.id)
    await workload.create()
    return workload, (await loop.backend.until_called(workload.id))[0]


async def test_an_adapter_that_was_down_catches_up(loop: ResourceLoop, make_resource: MakeResource) -> None:
    cluster = make_resource()

    async with loop.without_adapter("zones"):
        await cluster.create()
        await cluster.until_evaluated("quota", since=0)
        waiting = await cluster.status()
    ready = await cluster.until_ready()

    assert (waiting.ready, waiting.observed_generation) == ("False", 0)
    assert ready.observed_generation == 1


async def test_work_of_a_killed_process_is_repeated_and_reported(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    workload, _ = await create_held(loop, make_resource)

    await loop.kill_adapter("zones")
    mark = loop.backend.mark()
    await loop.backend.release()
    await loop.start_adapter("zones")
    ready = await workload.until_ready()

    assert ready.observed_generation == 1
    assert len(loop.backend.calls_for(workload.id, since=mark)) >= 1
    assert loop.backend.started["zones", workload.id, 1] == 1, "requested twice and done once"


@RABBITMQ
async def test_an_event_of_a_killed_process_is_redelivered_without_a_pulse(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    # Not with Pub/Sub, which redelivers when the lease expires: too long for a test.
    workload, _ = await create_held(loop, make_resource)
    await workload.pause()
    await loop.until_polled("workloads")
    published = loop.published(workload.id)

    await loop.kill_adapter("zones")
    mark = loop.backend.mark()
    await loop.backend.release()
    await loop.start_adapter("zones")
    (again, *_) = await loop.backend.until_called(workload.id, since=mark)
    await workload.until_ready()

    assert again.event_id in {event.event_id for event in published}
    assert loop.published(workload.id) == published


@BROKERS
async def test_a_spec_changed_while_the_broker_was_down_is_reconciled(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()
    before = loop.pids()

    async with loop.without_broker():
        await cluster.change()
        down = await cluster.status()
    ready = await cluster.until_ready(2, timeout=RECONNECT_TIMEOUT)

    assert down.ready == "False"
    assert ready.observed_generation == 2
    assert loop.pids() == before, "no process was restarted"


async def test_the_loop_continues_after_the_api_was_killed(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    ready = await cluster.until_ready()

    async with loop.without_api():
        pass
    kept = await cluster.until(lambda now: now.last_updated_time >= ready.last_updated_time)
    await cluster.change()
    after = await cluster.until_ready(2)

    assert kept.last_transition_time == ready.last_transition_time
    assert after.observed_generation == 2


@BROKERS
async def test_a_report_waits_for_the_api_and_is_not_dead_lettered(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    workload, _ = await create_held(loop, make_resource)

    async with loop.without_api():
        await loop.backend.release()
        await loop.adapter("zones").until_event("api.failed", operation="report")
        readiness, body = await loop.adapter("zones").readiness()
        liveness, _ = await loop.adapter("zones").liveness()
    ready = await workload.until_ready()

    assert ready.observed_generation == 1
    assert (readiness, liveness) == (503, 200)
    assert body["checks"]["hyperfleet_api"]["status"] == "error"
    assert loop.backend.started["zones", workload.id, 1] == 1
    assert not [line for line in loop.adapter("zones").lines if line.get("event") == "event.dead_lettered"]


async def test_a_broken_adapter_reports_it_and_recovers(loop: ResourceLoop, make_resource: MakeResource) -> None:
    workload = make_resource("workloads")
    loop.backend.set_initial_state("zones", workload.id, State.LOST)
    await workload.create()

    broken = await workload.until_evaluated(since=0)
    loop.backend.set_task("zones", workload.id, State.SUCCEEDED)
    ready = await workload.until_ready()

    assert (broken.statuses, broken.reason) == (("False", "False", "False"), "AdapterError")
    assert ready.is_ready


@BROKERS
async def test_sigterm_reports_running_work_and_exits_0(loop: ProcessLoop, make_resource: MakeResource) -> None:
    workload, call = await create_held(loop, make_resource)
    await workload.pause()

    loop.adapter("zones").send_signal(signal.SIGTERM)
    await loop.adapter("zones").until_event("service.stopping")
    await loop.backend.release()
    code = await loop.adapter("zones").exit_code()
    report = (await workload.reports())["zones"]

    assert code == 0
    assert report.statuses == ("True", "True", "True")
    assert report.time >= call.time

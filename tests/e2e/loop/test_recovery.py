"""Parts of the loop go and come back, and every resource becomes ready with nobody's help."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from tests.support.loop.deployments import BROKERS, RABBITMQ, Make
from tests.support.loop.fake_backend import State
from tests.support.loop.processes import ProcessLoop
from tests.support.loop.resource_loop import Loop

LONG = timedelta(seconds=60)
"""Who has tried in vain for a while waits longer before the next try."""

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_an_adapter_that_was_down_during_creation_makes_it_ready_when_it_is_back(
    loop: Loop, subject: Make
) -> None:
    cluster = subject()

    async with loop.without_adapter("zones"):
        await cluster.create()
        await cluster.until_evaluated("quota", since=0)
        waiting = await cluster.standing()
    ready = await cluster.until_ready()

    assert (waiting.ready, waiting.observed_generation) == ("False", 0)
    assert ready.observed_generation == 1


async def test_work_whose_report_was_lost_with_the_process_is_repeated_harmlessly_and_reported(
    loop: Loop, subject: Make
) -> None:
    workload = subject("workloads")
    loop.workshop.hold("zones", workload.id)
    await workload.create()
    await loop.workshop.until(workload.id)

    await loop.kill_adapter("zones")
    mark = loop.workshop.mark()
    await loop.workshop.release()
    await loop.start_adapter("zones")
    ready = await workload.until_ready()

    assert ready.observed_generation == 1
    assert len(loop.workshop.of(workload.id, since=mark)) >= 1
    assert loop.workshop.begun["zones", workload.id, 1] == 1, "asked for again, and done once"


@RABBITMQ
async def test_an_event_that_a_killed_process_held_comes_again_though_no_pulse_does(
    loop: ProcessLoop, subject: Make
) -> None:
    """Pub/Sub does the same when the lease is over, which is longer than anybody wants to wait here."""
    workload = subject("workloads")
    loop.workshop.hold("zones", workload.id)
    await workload.create()
    await loop.workshop.until(workload.id)
    await workload.pause()
    await loop.polls("workloads")
    published = loop.published(workload.id)

    await loop.kill_adapter("zones")
    mark = loop.workshop.mark()
    await loop.workshop.release()
    await loop.start_adapter("zones")
    (again, *_) = await loop.workshop.until(workload.id, since=mark)
    await workload.until_ready()

    assert again.event_id in {event.event_id for event in published}
    assert loop.published(workload.id) == published


@BROKERS
async def test_a_spec_that_changed_while_the_broker_was_down_is_reconciled_when_it_is_back(
    loop: ProcessLoop, subject: Make
) -> None:
    cluster = await subject().create()
    await cluster.until_ready()
    before = loop.pids()

    async with loop.without_broker():
        await cluster.change()
        down = await cluster.standing()
    ready = await cluster.until_ready(2, within=LONG)

    assert down.ready == "False"
    assert ready.observed_generation == 2
    assert loop.pids() == before, "nobody had to be restarted"


async def test_a_loop_whose_api_was_killed_goes_on_where_it_was(loop: Loop, subject: Make) -> None:
    cluster = await subject().create()
    ready = await cluster.until_ready()

    async with loop.without_api():
        pass
    kept = await cluster.until(lambda now: now.last_updated_time >= ready.last_updated_time)
    await cluster.change()
    after = await cluster.until_ready(2)

    assert kept.last_transition_time == ready.last_transition_time
    assert after.observed_generation == 2


@BROKERS
async def test_a_report_that_finds_no_api_waits_for_it_and_nothing_is_given_up(
    loop: ProcessLoop, subject: Make
) -> None:
    workload = subject("workloads")
    loop.workshop.hold("zones", workload.id)
    await workload.create()
    await loop.workshop.until(workload.id)

    async with loop.without_api():
        await loop.workshop.release()
        await loop.adapter("zones").until_event("api.failed", operation="report")
        readiness, body = await loop.adapter("zones").readiness()
        liveness, _ = await loop.adapter("zones").liveness()
    ready = await workload.until_ready()

    assert ready.observed_generation == 1
    assert (readiness, liveness) == (503, 200)
    assert body["checks"]["hyperfleet_api"]["status"] == "error"
    assert loop.workshop.begun["zones", workload.id, 1] == 1
    assert not [line for line in loop.adapter("zones").lines if line.get("event") == "event.dead_lettered"]


async def test_an_adapter_that_breaks_reports_it_and_heals_by_itself(loop: Loop, subject: Make) -> None:
    workload = subject("workloads")
    loop.workshop.begin_with("zones", workload.id, State.LOST)
    await workload.create()

    broken = await workload.until_evaluated(since=0)
    loop.workshop.set_task("zones", workload.id, State.SUCCEEDED)
    ready = await workload.until_ready()

    assert (broken.statuses, broken.reason) == (("False", "False", "False"), "AdapterError")
    assert ready.is_ready


@BROKERS
async def test_an_adapter_that_is_told_to_stop_reports_what_it_holds_and_exits_0(
    loop: ProcessLoop, subject: Make
) -> None:
    workload = subject("workloads")
    loop.workshop.hold("zones", workload.id)
    await workload.create()
    (look, *_) = await loop.workshop.until(workload.id)
    await workload.pause()

    loop.adapter("zones").send_signal(signal.SIGTERM)
    await loop.adapter("zones").until_event("service.stopping")
    await loop.workshop.release()
    code = await loop.adapter("zones").exit_code()
    report = (await workload.reports())["zones"]

    assert code == 0
    assert report.statuses == ("True", "True", "True")
    assert report.time >= look.time

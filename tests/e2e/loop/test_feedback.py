"""Events lead to reports, and reports decide when the next event is due."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.fleet.http_client import report
from tests.support.loop.deployments import BROKERS, MakeResource
from tests.support.loop.fake_backend import State, TaskCall
from tests.support.loop.processes import ProcessLoop
from tests.support.loop.resource_loop import ADAPTERS, MAX_AGE_NOT_READY, MAX_AGE_READY, ResourceLoop

pytestmark = pytest.mark.asyncio(loop_scope="package")

PACED = MAX_AGE_NOT_READY * 0.9
"""Pacing ends an interval slightly early, so as not to miss a poll."""
NEW_SPEC = "generation changed - new spec to reconcile"


def intervals(calls: list[TaskCall]) -> list[timedelta]:
    """The intervals between the events that caused these calls."""
    return [later.event_time - earlier.event_time for earlier, later in pairwise(calls)]


async def test_the_event_of_a_due_resource_reaches_its_adapter(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    workload = await make_resource("workloads").create()

    (call, *_) = await loop.backend.until_called(workload.id)
    reason = await loop.reason_of(call.event_id)

    assert call.generation == 1
    assert reason == NEW_SPEC


@BROKERS
async def test_every_subscription_gets_the_event_that_the_pulse_logs(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    async with loop.recording() as recorder:
        cluster = await make_resource().create()

        (event, *_) = await recorder.until(cluster.id)
        calls = [(await loop.backend.until_called(cluster.id, adapter))[0] for adapter in ADAPTERS]
        reason = await loop.reason_of(event.id)

    assert {call.event_id for call in calls} == {event.id}
    assert event.type == "com.redhat.hyperfleet.cluster.reconcile"
    assert event.data == {"resource_id": cluster.id, "resource_type": "Cluster"}
    assert reason == NEW_SPEC


async def test_a_changed_spec_gets_its_event_before_the_max_age_expires(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()

    await cluster.change()
    (call, *_) = await loop.backend.until_called(cluster.id, generation=2)
    reason = await loop.reason_of(call.event_id)
    ready = await cluster.until_ready(2)

    assert reason == NEW_SPEC
    assert ready.observed_generation == 2


async def test_a_ready_resource_gets_its_next_event_after_max_age_ready(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    workload = await make_resource("workloads").create()
    ready = await workload.until_ready()

    call = await workload.until_called_because("max age expired (ready)", since=0)
    times = [each.event_time for each in loop.backend.calls_for(workload.id)]

    assert call.event_time >= ready.last_updated_time + MAX_AGE_READY
    assert not [time for time in times if ready.last_updated_time < time < call.event_time]


async def test_an_unready_resource_gets_its_next_event_after_max_age_not_ready(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    workload = make_resource("workloads")
    loop.backend.set_initial_state("zones", workload.id, State.FAILED)
    await workload.create()

    first = await workload.until_evaluated(since=0)
    call = await workload.until_called_because("max age expired (not ready)", since=0)
    calls = loop.backend.calls_for(workload.id)

    assert call.event_time >= first.time + MAX_AGE_NOT_READY
    assert min(intervals(calls)) >= PACED


async def test_the_pulse_reads_the_adapters_reports_in_later_polls(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = make_resource()
    loop.backend.set_initial_state("zones", cluster.id, State.IN_PROGRESS)
    await cluster.create()

    calls = await loop.backend.until_called(cluster.id, count=2)
    unreported = await cluster.status()
    loop.backend.set_task("zones", cluster.id, State.SUCCEEDED)
    ready = await cluster.until_ready()
    later = await cluster.until_called_because("max age expired (ready)", since=0)
    reasons = [await loop.reason_of(call.event_id) for call in calls]

    assert (unreported.observed_generation, ready.observed_generation) == (0, 1)
    assert reasons == [NEW_SPEC, NEW_SPEC]
    assert later.event_time >= ready.last_updated_time + MAX_AGE_READY


async def test_unmet_preconditions_report_the_time_of_every_evaluation(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = make_resource()
    loop.backend.set_initial_state("quota", cluster.id, State.FAILED)
    await cluster.create(chained=True)

    first = await cluster.until_evaluated("zones", since=0)
    second = await cluster.until_evaluated("zones", since=loop.backend.mark())
    status = await cluster.until(lambda now: now.last_updated_time > first.time)
    calls = loop.backend.calls_for(cluster.id)

    assert (first.statuses, first.reason) == (("False", "False", "True"), "PreconditionsNotMet")
    assert (second.statuses, second.reason) == (first.statuses, first.reason)
    assert (first.is_stored, second.is_stored) == (True, True)
    assert first.time < second.time
    assert status.ready == "False"
    assert min(intervals(calls)) >= PACED, "its report delays the next event"
    assert not any(call.is_met for call in calls)
    assert loop.backend.started["zones", cluster.id, 1] == 0


async def test_met_preconditions_report_the_time_of_every_evaluation(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create(chained=True)
    await cluster.until_ready()

    first = (await cluster.reports())["zones"]
    mark = loop.backend.mark()
    await cluster.request_pulse()
    second = await cluster.until_evaluated("zones", since=mark)

    assert first.statuses == second.statuses == ("True", "True", "True")
    assert second.is_stored
    assert first.time < second.time
    assert loop.backend.started["zones", cluster.id, 1] == 1


async def test_the_max_age_counts_from_the_oldest_report(loop: ResourceLoop, make_resource: MakeResource) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()
    for adapter in ADAPTERS:
        reply = await loop.fleet.call("POST", f"{cluster.path}/statuses", report(adapter))
        assert reply.status == 201
    mark = loop.backend.mark()

    reported = await cluster.status()
    times = [each.time for each in (await cluster.reports()).values()]
    call = await cluster.until_called_because("max age expired (ready)", since=mark)

    assert reported.last_updated_time == min(times)
    assert call.event_time >= min(times) + MAX_AGE_READY


@pytest.mark.parametrize("state", [State.IN_PROGRESS, State.SUCCEEDED])
async def test_while_one_adapter_is_missing_events_are_paced_by_the_max_age(
    loop: ResourceLoop, make_resource: MakeResource, state: State
) -> None:
    # The resource stays due, whether the other adapter is always in progress or always done.
    manifest = make_resource("manifests")
    loop.backend.set_initial_state("zones", manifest.id, state)
    await manifest.create()

    calls = await loop.backend.until_called(manifest.id, count=3)
    await loop.reason_of(calls[-1].event_id)
    published = loop.published(manifest.id)
    status = await manifest.status()

    assert min(intervals(calls)) >= PACED
    assert [event.event_id for event in published[:3]] == [call.event_id for call in calls[:3]]
    assert (status.ready, status.available) == ("False", "False")


async def test_a_deleted_resource_is_gone_after_its_adapters_have_cleaned_up(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()
    loop.backend.hold("zones", cluster.id)
    mark = loop.backend.mark()

    await cluster.delete()
    await loop.backend.until_called(cluster.id, generation=2, since=mark)
    deleting = await cluster.status()
    await loop.backend.release()
    await cluster.until_gone()

    assert (deleting.generation, deleting.ready) == (2, "False")

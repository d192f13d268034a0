"""Events lead to reports, and reports decide on the next event: the pulse and the adapters' contract, together."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.fleet.http_client import report
from tests.support.loop.deployments import BROKERS, Make
from tests.support.loop.fake_backend import State, Visit
from tests.support.loop.processes import ProcessLoop
from tests.support.loop.resource_loop import ADAPTERS, MAX_AGE_NOT_READY, MAX_AGE_READY, Loop

pytestmark = pytest.mark.asyncio(loop_scope="package")

PACED = MAX_AGE_NOT_READY * 0.9
"""Where only pacing holds events back, an interval counts as over a little early, so as not to miss a poll."""
NEW_SPEC = "generation changed - new spec to reconcile"


def distances(visits: list[Visit]) -> list[timedelta]:
    """Between the events that led to these looks."""
    return [later.event_time - earlier.event_time for earlier, later in pairwise(visits)]


async def test_an_event_is_published_for_a_resource_that_is_due_and_reaches_its_adapter(
    loop: Loop, subject: Make
) -> None:
    workload = await subject("workloads").create()

    (look, *_) = await loop.workshop.until(workload.id)
    reason = await loop.reason_of(look.event_id)

    assert look.generation == 1
    assert reason == NEW_SPEC


@BROKERS
async def test_every_subscription_gets_the_very_event_that_the_pulse_tells_of(
    loop: ProcessLoop, subject: Make
) -> None:
    async with loop.listening() as listener:
        cluster = await subject().create()

        (event, *_) = await listener.until(cluster.id)
        looks = [(await loop.workshop.until(cluster.id, adapter))[0] for adapter in ADAPTERS]
        reason = await loop.reason_of(event.id)

    assert {look.event_id for look in looks} == {event.id}
    assert event.type == "com.redhat.hyperfleet.cluster.reconcile"
    assert event.data == {"resource_id": cluster.id, "resource_type": "Cluster"}
    assert reason == NEW_SPEC


async def test_a_changed_spec_gets_its_event_before_the_max_age_is_over(loop: Loop, subject: Make) -> None:
    cluster = await subject().create()
    await cluster.until_ready()

    await cluster.change()
    (look, *_) = await loop.workshop.until(cluster.id, generation=2)
    reason = await loop.reason_of(look.event_id)
    ready = await cluster.until_ready(2)

    assert reason == NEW_SPEC
    assert ready.observed_generation == 2


async def test_a_resource_that_is_current_gets_its_next_event_when_its_max_age_is_over(
    loop: Loop, subject: Make
) -> None:
    workload = await subject("workloads").create()
    ready = await workload.until_ready()

    look = await workload.until_looked_at_because("max age expired (ready)", since=0)
    times = [each.event_time for each in loop.workshop.of(workload.id)]

    assert look.event_time >= ready.last_updated_time + MAX_AGE_READY
    assert not [time for time in times if ready.last_updated_time < time < look.event_time]


async def test_a_resource_that_is_not_ready_gets_its_next_event_when_the_shorter_max_age_is_over(
    loop: Loop, subject: Make
) -> None:
    workload = subject("workloads")
    loop.workshop.begin_with("zones", workload.id, State.FAILED)
    await workload.create()

    first = await workload.until_evaluated(since=0)
    look = await workload.until_looked_at_because("max age expired (not ready)", since=0)
    looks = loop.workshop.of(workload.id)

    assert look.event_time >= first.time + MAX_AGE_NOT_READY
    assert min(distances(looks)) >= PACED


async def test_what_adapters_report_is_what_the_pulse_reads_in_later_polls(loop: Loop, subject: Make) -> None:
    cluster = subject()
    loop.workshop.begin_with("zones", cluster.id, State.IN_PROGRESS)
    await cluster.create()

    looks = await loop.workshop.until(cluster.id, count=2)
    unreported = await cluster.standing()
    loop.workshop.set_task("zones", cluster.id, State.SUCCEEDED)
    ready = await cluster.until_ready()
    later = await cluster.until_looked_at_because("max age expired (ready)", since=0)
    reasons = [await loop.reason_of(look.event_id) for look in looks]

    assert (unreported.observed_generation, ready.observed_generation) == (0, 1)
    assert reasons == [NEW_SPEC, NEW_SPEC]
    assert later.event_time >= ready.last_updated_time + MAX_AGE_READY


async def test_an_adapter_whose_preconditions_are_not_met_reports_the_time_of_every_look(
    loop: Loop, subject: Make
) -> None:
    cluster = subject()
    loop.workshop.begin_with("quota", cluster.id, State.FAILED)
    await cluster.create(chained=True)

    first = await cluster.until_evaluated("zones", since=0)
    second = await cluster.until_evaluated("zones", since=loop.workshop.mark())
    standing = await cluster.until(lambda now: now.last_updated_time > first.time)
    looks = loop.workshop.of(cluster.id)

    assert (first.statuses, first.reason) == (("False", "False", "True"), "PreconditionsNotMet")
    assert (second.statuses, second.reason) == (first.statuses, first.reason)
    assert (first.is_taken, second.is_taken) == (True, True)
    assert first.time < second.time
    assert standing.ready == "False"
    assert min(distances(looks)) >= PACED, "what it reports keeps the next event away"
    assert not any(look.is_met for look in looks)
    assert loop.workshop.begun["zones", cluster.id, 1] == 0


async def test_an_adapter_whose_preconditions_are_met_reports_the_time_of_every_look(
    loop: Loop, subject: Make
) -> None:
    cluster = await subject().create(chained=True)
    await cluster.until_ready()

    first = (await cluster.reports())["zones"]
    mark = loop.workshop.mark()
    await cluster.ask_for_pulse()
    second = await cluster.until_evaluated("zones", since=mark)

    assert first.statuses == second.statuses == ("True", "True", "True")
    assert second.is_taken
    assert first.time < second.time
    assert loop.workshop.begun["zones", cluster.id, 1] == 1


async def test_the_max_age_is_counted_from_the_oldest_of_the_adapters_reports(loop: Loop, subject: Make) -> None:
    cluster = await subject().create()
    await cluster.until_ready()
    for adapter in ADAPTERS:
        reply = await loop.fleet.call("POST", f"{cluster.path}/statuses", report(adapter))
        assert reply.status == 201
    mark = loop.workshop.mark()

    reported = await cluster.standing()
    times = [each.time for each in (await cluster.reports()).values()]
    look = await cluster.until_looked_at_because("max age expired (ready)", since=mark)

    assert reported.last_updated_time == min(times)
    assert look.event_time >= min(times) + MAX_AGE_READY


@pytest.mark.parametrize("state", [State.IN_PROGRESS, State.SUCCEEDED])
async def test_where_one_adapter_is_silent_events_come_at_each_max_age_and_no_more_often(
    loop: Loop, subject: Make, state: State
) -> None:
    """Whether the other one is always in progress or always done, the status says that the resource is due."""
    manifest = subject("manifests")
    loop.workshop.begin_with("zones", manifest.id, state)
    await manifest.create()

    looks = await loop.workshop.until(manifest.id, count=3)
    await loop.reason_of(looks[-1].event_id)
    published = loop.published(manifest.id)
    standing = await manifest.standing()

    assert min(distances(looks)) >= PACED
    assert [event.event_id for event in published[:3]] == [look.event_id for look in looks[:3]]
    assert (standing.ready, standing.available) == ("False", "False")


async def test_a_deleted_resource_is_gone_when_its_adapters_have_cleaned_up(loop: Loop, subject: Make) -> None:
    cluster = await subject().create()
    await cluster.until_ready()
    loop.workshop.hold("zones", cluster.id)
    mark = loop.workshop.mark()

    await cluster.delete()
    await loop.workshop.until(cluster.id, generation=2, since=mark)
    deleting = await cluster.standing()
    await loop.workshop.release()
    await cluster.until_gone()

    assert (deleting.generation, deleting.ready) == (2, "False")

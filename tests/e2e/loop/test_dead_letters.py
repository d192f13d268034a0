"""What an adapter gives up is kept with its reason, and people can have it delivered again.

Only where there is a broker to keep it: one in the process of `up` has no dead letters that a command could reach.
"""

from __future__ import annotations

import pytest

from tests.support.brokers.rabbitmq import unique
from tests.support.http.intercepting_proxy import RejectingGateway
from tests.support.loop.deployments import BROKERS, Make
from tests.support.loop.processes import ProcessLoop

NO_EVENT = "expected a CloudEvent, got a message without the attributes of one"

pytestmark = [pytest.mark.asyncio(loop_scope="package"), BROKERS]


async def test_an_event_whose_report_is_refused_is_kept_and_makes_the_resource_ready_when_replayed(
    loop: ProcessLoop, subject: Make
) -> None:
    workload = subject("workloads")
    async with RejectingGateway(loop.url) as gateway:
        await loop.kill_adapter("zones")
        await loop.start_adapter("zones", endpoint=gateway.url)
        await workload.create()
        await loop.adapter("zones").until_event("event.dead_lettered", resource_id=workload.id)
        await workload.pause()
        await loop.polls("workloads")

        listed = await loop.dead_letters("zones", "list")
        letters = [letter for letter in listed["dead_letters"] if letter["subject"] == workload.id]
        before = await workload.standing()
        gateway.is_rejecting = False
        replayed = await loop.dead_letters("zones", "replay", letters[0]["id"])
        ready = await workload.until_ready()
        await loop.kill_adapter("zones")

    assert "refused the report" in letters[0]["reason"]
    assert letters[0]["type"] == "com.redhat.hyperfleet.workload.reconcile"
    assert before.observed_generation == 0
    assert replayed["count"] == 1
    assert ready.observed_generation == 1


async def test_a_message_that_is_no_event_is_kept_apart_and_holds_up_nobody(
    loop: ProcessLoop, subject: Make
) -> None:
    cluster = subject()
    junk = unique("junk")

    await loop.broker.publish_junk(junk.encode())
    await cluster.create()
    ready = await cluster.until_ready()
    await loop.adapter("zones").until_event("event.dead_lettered", reason=NO_EVENT)
    listed = await loop.dead_letters("zones", "list")
    letters = [letter for letter in listed["dead_letters"] if letter["reason"] == NO_EVENT]
    dropped = await loop.dead_letters("zones", "drop", letters[0]["id"])

    assert ready.is_ready
    assert [(letter["type"], letter["subject"]) for letter in letters] == [("", "")]
    assert dropped["count"] == 1

"""Dead letters keep their reason and can be replayed.

Only with a separate broker: commands cannot reach the in-memory broker of `up`.
"""

from __future__ import annotations

import pytest

from tests.support.brokers.rabbitmq import unique
from tests.support.http.intercepting_proxy import RejectingGateway
from tests.support.loop.deployments import BROKERS, MakeResource
from tests.support.loop.processes import ProcessLoop

NO_EVENT = "expected a CloudEvent, got a message without the attributes of one"

pytestmark = [pytest.mark.asyncio(loop_scope="package"), BROKERS]


async def test_a_refused_report_dead_letters_its_event_which_can_be_replayed(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    workload = make_resource("workloads")
    async with RejectingGateway(loop.url) as gateway:
        await loop.kill_adapter("zones")
        await loop.start_adapter("zones", endpoint=gateway.url)
        await workload.create()
        await loop.adapter("zones").until_event("event.dead_lettered", resource_id=workload.id)
        await workload.pause()
        await loop.until_polled("workloads")

        listed = await loop.dead_letters("zones", "list")
        letters = [letter for letter in listed["dead_letters"] if letter["subject"] == workload.id]
        before = await workload.status()
        gateway.is_rejecting = False
        replayed = await loop.dead_letters("zones", "replay", letters[0]["id"])
        ready = await workload.until_ready()
        await loop.kill_adapter("zones")

    assert "refused the report" in letters[0]["reason"]
    assert letters[0]["type"] == "com.redhat.hyperfleet.workload.reconcile"
    assert before.observed_generation == 0
    assert replayed["count"] == 1
    assert ready.observed_generation == 1


async def test_a_message_that_is_not_an_event_is_dead_lettered(
    loop: ProcessLoop, make_resource: MakeResource
) -> None:
    cluster = make_resource()
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

"""A broker fails in mid-cycle with thousands of events due: every event that is reported as published arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.ports.publisher import Publisher, PublishOutcome, Receipt
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.fleet import FakeFleet
from tests.support.brokers.rabbitmq import PrivateRabbitMQ, eventually, open_inbox
from tests.support.fleet.fake_api import FleetServer, make_resource
from tests.support.processes.service import SentinelProcess
from tests.support.pulse_harness import SECOND, PulseRecorder, make_pulse

pytestmark = pytest.mark.timeout(900)  # a node that is killed may take minutes to start on a busy machine

DUE = 4000
RECOVERY_TIMEOUT = timedelta(seconds=300)


class IgnoresConfirms:
    """A faulty publisher that reports every event as confirmed."""

    broker_type = "rabbitmq"

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.open = publisher.open
        self.close = publisher.close
        self.abandon = publisher.abandon
        self.unavailable_reason = publisher.unavailable_reason

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        await self._publisher.publish(events, deadline=timedelta(milliseconds=200))
        return Receipt([PublishOutcome.CONFIRMED] * len(events), [])


async def restart(node: PrivateRabbitMQ) -> None:
    await node.kill()
    await node.start()


async def disconnect(node: PrivateRabbitMQ) -> None:
    for _ in range(3):
        await node.close_connections()


async def check_published_events_arrive(
    node: PrivateRabbitMQ,
    *,
    fail: Callable[[PrivateRabbitMQ], Awaitable[None]],
    wrap: Callable[[Publisher], Publisher] = lambda publisher: publisher,
) -> None:
    """Make the broker fail while a pulse publishes, and compare its report with the messages that arrived."""
    fleet = FakeFleet(page_size=100)
    for n in range(DUE):
        fleet.put(f"cls-{n}")
    recorder, stopping = PulseRecorder(), Stopping()
    async with open_inbox(node.url, keep=True) as first:
        publisher = wrap(RabbitMQPublisher(url=node.url, exchange=first.exchange, exchange_type="fanout"))
        await publisher.open()
        pulse = make_pulse(
            fleet=fleet,
            publisher=publisher,
            clock=SystemClock(),
            observer=recorder,
            poll_interval=SECOND,
            max_age_not_ready=timedelta(hours=1),
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pulse.run(stopping))
                await eventually(lambda: len(recorder.confirmed) > DUE // 10)
                await fail(node)
                await eventually(lambda: len(set(recorder.confirmed)) == DUE, timeout=RECOVERY_TIMEOUT)
                stopping.request()
        finally:
            await publisher.close()
    async with open_inbox(node.url, exchange=first.exchange, queue=first.queue) as second:
        arrived = {msgspec.json.decode(message.body)["subject"] for message in await second.receive_all()}

    confirmed = set(recorder.confirmed)
    assert confirmed <= arrived, f"{len(confirmed - arrived)} confirmed events did not arrive"
    assert len(arrived) == DUE
    assert sum(report.published for report in recorder.cycles) == len(recorder.confirmed)


@pytest.mark.parametrize("fail", [restart, disconnect])
async def test_every_due_resource_arrives_and_no_lost_event_is_confirmed(
    private_rabbitmq: PrivateRabbitMQ, fail: Callable[[PrivateRabbitMQ], Awaitable[None]]
) -> None:
    await check_published_events_arrive(private_rabbitmq, fail=fail)


async def test_a_publisher_that_ignores_confirms_is_detected(private_rabbitmq: PrivateRabbitMQ) -> None:
    with pytest.raises(AssertionError, match="confirmed events did not arrive"):
        await check_published_events_arrive(private_rabbitmq, fail=restart, wrap=IgnoresConfirms)


async def test_the_pulse_recovers_from_a_broker_restart_within_a_poll(
    private_rabbitmq: PrivateRabbitMQ, server: FleetServer, tmp_path: Path
) -> None:
    node = private_rabbitmq
    config = {"resource_type": "clusters", "poll_interval": "1s", "hyperfleet_api": {"endpoint": server.url}}
    async with open_inbox(node.url, keep=True) as inbox:
        environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": node.url, "BROKER_EXCHANGE": inbox.exchange}
        server.put(make_resource("before", observed_generation=0))
        async with SentinelProcess(tmp_path, config, environ=environ) as service:
            await service.until_event("event.published", resource_id="before")
            await node.kill()
            server.put(make_resource("during", observed_generation=0))
            await service.until_event("event.failed")
            down, body = await service.readiness()
            alive, _ = await service.liveness()
            await node.start()
            await service.until_event("event.published", resource_id="during", timeout=300)
            await service.until_event("cycle.done", since=len(service.lines))
            up, _ = await service.readiness()
            errors = await service.metric("broker_errors_total", broker_type="rabbitmq")
            code = await service.stop()

    assert (down, alive, up, code) == (503, 200, 200, 0)
    assert body["checks"]["broker"]["status"] == "error"
    assert errors >= 1

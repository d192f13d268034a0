"""A broker lost in mid-cycle with thousands due: nothing is lost, and nothing claimed that did not arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.ports.publisher import Outcome, Publisher, Receipt
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.fleet import FakeFleet
from tests.support.brokers.rabbitmq import PrivateRabbitMQ, eventually, open_inbox
from tests.support.fleet.fake_api import FleetServer, make_resource
from tests.support.processes.service import SentinelProcess
from tests.support.pulse_harness import SECOND, Recorder, make_pulse

DUE = 4000
LONG = timedelta(seconds=90)


class CarelessPublisher:
    """The fault that is planted: it believes that whatever it has sent has arrived."""

    broker_type = "rabbitmq"

    def __init__(self, careful: Publisher) -> None:
        self._careful = careful
        self.open = careful.open
        self.close = careful.close
        self.trouble = careful.trouble

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        await self._careful.publish(events, deadline=timedelta(milliseconds=200))
        return Receipt([Outcome.CONFIRMED] * len(events), [])


def itself(publisher: Publisher) -> Publisher:
    return publisher


async def restarted(node: PrivateRabbitMQ) -> None:
    await node.kill()
    await node.start()


async def disconnected(node: PrivateRabbitMQ) -> None:
    for _ in range(3):
        await node.close_connections()


async def every_claimed_event_has_arrived(
    node: PrivateRabbitMQ,
    *,
    accident: Callable[[PrivateRabbitMQ], Awaitable[None]],
    wrap: Callable[[Publisher], Publisher] = itself,
) -> None:
    """What the tests claim, of any publisher and any accident."""
    fleet = FakeFleet(page_size=100)
    for n in range(DUE):
        fleet.put(f"cls-{n}")
    recorder, stopping = Recorder(), Stopping()
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
                await accident(node)
                await eventually(lambda: len(set(recorder.confirmed)) == DUE, timeout=LONG)
                stopping.request()
        finally:
            await publisher.close()
        names = first.exchange, first.queue
    async with open_inbox(node.url, exchange=names[0], queue=names[1]) as again:
        arrived = {msgspec.json.decode(message.body)["subject"] for message in await again.receive_all()}

    claimed = set(recorder.confirmed)
    assert claimed <= arrived, f"{len(claimed - arrived)} events were claimed and never arrived"
    assert len(arrived) == DUE
    assert sum(report.published for report in recorder.cycles) == len(recorder.confirmed)


@pytest.mark.parametrize("accident", [restarted, disconnected])
async def test_every_due_resource_arrives_and_none_is_claimed_that_did_not(
    private_rabbitmq: PrivateRabbitMQ, accident: Callable[[PrivateRabbitMQ], Awaitable[None]]
) -> None:
    await every_claimed_event_has_arrived(private_rabbitmq, accident=accident)


async def test_ignoring_confirms_would_be_noticed(private_rabbitmq: PrivateRabbitMQ) -> None:
    with pytest.raises(AssertionError, match="claimed and never arrived"):
        await every_claimed_event_has_arrived(private_rabbitmq, accident=restarted, wrap=CarelessPublisher)


async def test_a_broker_restart_is_survived_within_a_poll(
    private_rabbitmq: PrivateRabbitMQ, tmp_path: Path
) -> None:
    node = private_rabbitmq
    async with FleetServer() as server, open_inbox(node.url, keep=True) as first:
        config = {
            "resource_type": "clusters",
            "poll_interval": "1s",
            "hyperfleet_api": {"endpoint": server.url},
        }
        environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": node.url, "BROKER_EXCHANGE": first.exchange}
        server.put(make_resource("before", observed_generation=0))
        async with SentinelProcess(tmp_path, config, environ=environ) as service:
            await service.until_event("event.published", resource_id="before")
            await node.kill()
            server.put(make_resource("during", observed_generation=0))
            await service.until_event("event.failed")
            down, body = await service.readiness()
            alive, _ = await service.liveness()
            await node.start()
            await service.until_event("event.published", resource_id="during", timeout=60)
            await service.until_event("cycle.done", since=len(service.lines))
            up, _ = await service.readiness()
            errors = await service.metric("broker_errors_total", broker_type="rabbitmq")
            code = await service.stop()

    assert (down, alive, up, code) == (503, 200, 200, 0)
    assert body["checks"]["broker"]["status"] == "error"
    assert errors >= 1

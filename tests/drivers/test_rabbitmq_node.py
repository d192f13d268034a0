"""The RabbitMQ publisher on a node of its own: restarted, killed, starved, behind TLS, with users of little power."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from sentinel.core.events import Event
from sentinel.drivers.rabbitmq import RabbitMQPublisher
from sentinel.ports import BrokerMisconfigured, Outcome, Receipt
from tests.support.rabbitmq import PrivateRabbitMQ, eventually, inbox, make_events, unique, url_of

AMPLE = timedelta(seconds=60)
MANY = 20_000


@asynccontextmanager
async def opened(url: str, exchange: str, *, ca_file: Path | None = None) -> AsyncIterator[RabbitMQPublisher]:
    publisher = RabbitMQPublisher(url=url, exchange=exchange, exchange_type="fanout", ca_file=ca_file)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


async def publish_all(publisher: RabbitMQPublisher, events: list[Event]) -> set[str]:
    """Publishes until everything is confirmed, as a pulse does, and says what was."""
    confirmed: set[str] = set()
    async with asyncio.timeout(AMPLE.total_seconds()):
        while rest := [event for event in events if event.id not in confirmed]:
            receipt = await publisher.publish(rest, deadline=AMPLE)
            answers = zip(rest, receipt.outcomes, strict=True)
            confirmed |= {event.id for event, outcome in answers if outcome is Outcome.CONFIRMED}
            await asyncio.sleep(0.02)
    return confirmed


async def interrupted(
    publisher: RabbitMQPublisher, events: list[Event], interrupt: Callable[[], Awaitable[None]]
) -> Receipt:
    """Publishes, and interrupts when the first events of many have been confirmed."""
    publishing = asyncio.create_task(publisher.publish(events, deadline=AMPLE))
    # The loop is given up between the writes of a batch, so a tenth of it is out long before the rest.
    await asyncio.sleep(0.05)
    await interrupt()
    return await publishing


class TestLoss:
    async def test_nothing_confirmed_is_missing_after_the_broker_closes_all_connections(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        exchange, queue = unique("exchange"), unique("queue")
        events = make_events(MANY)
        async with inbox(private_rabbitmq.url, exchange=exchange, queue=queue):
            pass

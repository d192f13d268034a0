"""The RabbitMQ publisher on a private node: killed, restarted, out of memory, with TLS, with limited users."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import PublishOutcome
from tests.support.brokers import rabbitmq
from tests.support.brokers.rabbitmq import PrivateRabbitMQ, eventually, make_events

pytestmark = pytest.mark.timeout(900)  # a node that is killed may take minutes to start on a busy machine

TIMEOUT = timedelta(seconds=60)
SHORT = timedelta(milliseconds=200)
MANY = 5_000
HALF_SENT = 1_500_000
"""Bytes of half the events, more than one window: by then some are confirmed and many are not."""


@asynccontextmanager
async def opened(url: str, exchange: str, *, ca_file: Path | None = None) -> AsyncIterator[RabbitMQPublisher]:
    publisher = RabbitMQPublisher(url=url, exchange=exchange, exchange_type="fanout", ca_file=ca_file)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


async def check_loss_during_batch(
    broker: PrivateRabbitMQ, lose: Callable[[], Awaitable[None]], restore: Callable[[], Awaitable[None]]
) -> None:
    """Lose the broker while thousands of events are in flight, and check that every confirmed one was kept.

    The broker's responses are held back meanwhile, so that it has confirmed more than the publisher knows.
    """
    exchange, queue = rabbitmq.unique("exchange"), rabbitmq.unique("queue")
    events = make_events(MANY)
    async with rabbitmq.BrokerProxy(broker.url) as proxy, opened(proxy.url, exchange) as publisher:
        async with rabbitmq.open_inbox(broker.url, exchange=exchange, queue=queue, keep=True):
            publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
            await eventually(lambda: len(proxy.sent) > HALF_SENT)
            proxy.hold_responses()
        await lose()
        proxy.release_responses()
        receipt = await publishing
        await restore()
        await eventually(lambda: publisher.unavailable_reason() is None, timeout=TIMEOUT)
        again = await publisher.publish(make_events(MANY, first=MANY), deadline=TIMEOUT)
        async with rabbitmq.open_inbox(broker.url, exchange=exchange, queue=queue) as inbox:
            received = {message.message_id for message in await inbox.receive_all()}

    outcomes = zip(events, receipt.outcomes, strict=True)
    confirmed = {event.id for event, outcome in outcomes if outcome is PublishOutcome.CONFIRMED}
    assert 0 < len(confirmed) < MANY
    assert receipt.error
    assert again.outcomes == [PublishOutcome.CONFIRMED] * MANY
    assert confirmed <= received
    assert {f"event-{MANY + number}" for number in range(MANY)} <= received


class TestLoss:
    async def test_confirmed_events_survive_closed_connections(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        async def nothing() -> None:
            pass

        await check_loss_during_batch(private_rabbitmq, private_rabbitmq.close_connections, nothing)

    async def test_confirmed_events_survive_a_restart(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        await check_loss_during_batch(private_rabbitmq, private_rabbitmq.stop, private_rabbitmq.start)

    async def test_confirmed_events_survive_a_killed_broker(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        await check_loss_during_batch(private_rabbitmq, private_rabbitmq.kill, private_rabbitmq.start)


class TestAlarm:
    async def test_nothing_is_sent_during_a_memory_alarm(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        async with (
            rabbitmq.open_inbox(private_rabbitmq.url) as inbox,
            rabbitmq.BrokerProxy(private_rabbitmq.url) as proxy,
            opened(proxy.url, inbox.exchange) as publisher,
        ):
            async with private_rabbitmq.alarm():
                first = await publisher.publish(make_events(2_000), deadline=SHORT)
                await eventually(lambda: publisher.unavailable_reason() is not None)
                unavailable_reason = publisher.unavailable_reason()
                sent = proxy.published
                second = await publisher.publish(make_events(100, first=2_000), deadline=SHORT)

                assert PublishOutcome.UNCONFIRMED in first.outcomes
                assert unavailable_reason is not None
                assert "the broker accepts no messages now" in unavailable_reason
                assert second.outcomes == [PublishOutcome.UNCONFIRMED] * 100
                assert second.error == unavailable_reason
                assert proxy.published == sent
                waiting = asyncio.create_task(publisher.publish(make_events(50, first=2_100), deadline=TIMEOUT))
            receipt = await waiting

            assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 50
            assert publisher.unavailable_reason() is None
            assert proxy.accepted == 1


class TestTls:
    async def test_a_broker_with_a_trusted_certificate_is_used(
        self, private_rabbitmq: PrivateRabbitMQ, ca_file: Path
    ) -> None:
        async with rabbitmq.open_inbox(private_rabbitmq.url) as inbox:
            url = rabbitmq.url_of(private_rabbitmq.tls_port, tls=True)
            async with opened(url, inbox.exchange, ca_file=ca_file) as publisher:
                receipt = await publisher.publish(make_events(2_000), deadline=TIMEOUT)
            messages = await inbox.receive(2_000)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 2_000
        assert len(messages) == 2_000

    async def test_a_broker_with_an_untrusted_certificate_is_rejected(
        self, private_rabbitmq: PrivateRabbitMQ, tmp_path: Path
    ) -> None:
        untrusted = tmp_path / "untrusted.pem"
        trustme.CA().cert_pem.write_to_path(str(untrusted))

        for ca_file in (untrusted, None):
            url = rabbitmq.url_of(private_rabbitmq.tls_port, tls=True)
            async with opened(url, "amq.fanout", ca_file=ca_file) as publisher:
                unavailable_reason = publisher.unavailable_reason()

            assert unavailable_reason is not None
            assert "certificate verify failed" in unavailable_reason

    async def test_a_ca_file_that_appears_later_is_read(
        self, private_rabbitmq: PrivateRabbitMQ, ca_file: Path, tmp_path: Path
    ) -> None:
        late = tmp_path / "late.pem"
        url = rabbitmq.url_of(private_rabbitmq.tls_port, tls=True)

        async with opened(url, "amq.fanout", ca_file=late) as publisher:
            unavailable_reason = publisher.unavailable_reason()
            await asyncio.to_thread(shutil.copy, ca_file, late)
            await eventually(lambda: publisher.unavailable_reason() is None)

        assert unavailable_reason == f"127.0.0.1:{private_rabbitmq.tls_port}: {late}: No such file or directory"


class TestUsers:
    async def test_special_characters_in_credentials_and_vhost_are_quoted(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        vhost, password = "fleet/eu west%", "p@ss:w/rd% é+&?#"
        await private_rabbitmq.control("add_vhost", vhost)
        name = await private_rabbitmq.add_user(password=password, vhost=vhost)
        url = rabbitmq.url_of(private_rabbitmq.port, vhost=vhost, user=(name, password))

        async with rabbitmq.open_inbox(url) as inbox, opened(url, inbox.exchange) as publisher:
            receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]

    async def test_a_user_who_may_not_declare_can_use_an_existing_exchange(
        self, private_rabbitmq: PrivateRabbitMQ
    ) -> None:
        name = await private_rabbitmq.add_user(password="limited", configure="^$")
        url = rabbitmq.url_of(private_rabbitmq.port, user=(name, "limited"))

        async with rabbitmq.open_inbox(private_rabbitmq.url) as inbox, opened(url, inbox.exchange) as publisher:
            receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]
        with pytest.raises(Misconfigured, match=r"no exchange 'missing'.*access to exchange 'missing'"):
            await RabbitMQPublisher(url=url, exchange="missing", exchange_type="fanout").open()

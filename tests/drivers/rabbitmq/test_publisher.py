"""The RabbitMQ publisher on a real broker; published messages are consumed and read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypedDict, Unpack

import aio_pika
import msgspec
import pytest
from aio_pika.abc import AbstractIncomingMessage
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp
from cloudevents.core.formats.json import JSONFormat

from sentinel.core.events import Event, Mode
from sentinel.drivers.rabbitmq.connection import BrokerAddress, amqp_url
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, Publisher, PublishOutcome, Receipt
from sentinel.runtime.backoff import Backoff
from tests.contract.connection import opened
from tests.contract.publisher import CONTENT_TYPES, attributes_of, check_attributes
from tests.contract.publisher import make_events as make_large_events
from tests.support.brokers.rabbitmq import BrokerProxy, Inbox, eventually, make_events, open_inbox, unique, url_of
from tests.support.loop_time import HOUR, LoopTime
from tools.services.rabbitmq import RABBITMQ_PORT

TIMEOUT = timedelta(seconds=60)
SHORT = timedelta(milliseconds=150)
AT_ONCE = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=10))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class PublisherOptions(TypedDict, total=False):
    exchange_type: str
    routing_key: str
    mode: Mode
    window: int
    heartbeat: timedelta
    observe: Callable[[Connectivity], None]


def make_publisher(url: str, exchange: str, **options: Unpack[PublisherOptions]) -> RabbitMQPublisher:
    """Return a publisher that reconnects at once, by default to a fanout exchange."""
    options = {"exchange_type": "fanout", "window": 500, **options}
    return RabbitMQPublisher(url=url, exchange=exchange, reconnect=AT_ONCE, **options)


async def publish_once_connected(publisher: Publisher, events: list[Event]) -> Receipt:
    await eventually(lambda: publisher.unavailable_reason() is None)
    return await publisher.publish(events, deadline=TIMEOUT)


def confirmed(events: list[Event], receipt: Receipt) -> set[str]:
    return {
        event.id
        for event, outcome in zip(events, receipt.outcomes, strict=True)
        if outcome is PublishOutcome.CONFIRMED
    }


def ids(messages: list[AbstractIncomingMessage]) -> list[str]:
    return [message.message_id or "" for message in messages]


class TestMessages:
    @pytest.mark.parametrize("mode", Mode)
    async def test_a_message_carries_the_event_in_its_properties_and_headers(
        self, rabbitmq_url: str, inbox: Inbox, mode: Mode
    ) -> None:
        [event] = make_events(1)

        async with opened(make_publisher(rabbitmq_url, inbox.exchange, mode=mode)) as publisher:
            await publisher.publish([event], deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        assert message.headers == {f"cloudEvents:{name}": value for name, value in attributes_of(0).items()}
        assert message.message_id == "event-0"
        assert message.type == "com.redhat.hyperfleet.cluster.reconcile"
        assert message.timestamp == datetime(2026, 3, 1, 12, tzinfo=UTC)
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
        assert message.routing_key == ""

    @pytest.mark.parametrize(("mode", "content_type"), CONTENT_TYPES.items())
    async def test_the_sdk_reads_a_message_as_the_event(
        self, rabbitmq_url: str, inbox: Inbox, mode: Mode, content_type: str
    ) -> None:
        [event] = make_events(1)
        traced = msgspec.structs.replace(event, traceparent=TRACE)

        async with opened(make_publisher(rabbitmq_url, inbox.exchange, mode=mode)) as publisher:
            await publisher.publish([traced], deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        assert message.content_type == content_type
        headers = {name: str(value) for name, value in message.headers.items()}
        read = from_amqp(AMQPMessage({"content-type": content_type}, headers, message.body), JSONFormat())
        check_attributes(read, 0)
        assert read.get_data() == {"resource_id": "cls-0", "padding": ""}
        assert read.get_extension("traceparent") == TRACE

    async def test_a_body_larger_than_a_frame_arrives_whole(self, rabbitmq_url: str, inbox: Inbox) -> None:
        events = [*make_events(2, padding=400_000), *make_events(1, first=2)]

        async with opened(make_publisher(rabbitmq_url, inbox.exchange)) as publisher:
            receipt = await publisher.publish(events, deadline=TIMEOUT)
        messages = await inbox.receive(3)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 3
        bodies = [msgspec.json.decode(message.body)["data"] for message in messages]
        assert bodies == [msgspec.json.decode(event.data) for event in events]

    async def test_the_routing_key_decides_where_a_message_goes(self, rabbitmq_url: str) -> None:
        async with open_inbox(rabbitmq_url, exchange_type="topic", routing_key="due.#") as inbox:
            publisher = make_publisher(rabbitmq_url, inbox.exchange, exchange_type="topic", routing_key="due.now")
            async with opened(publisher):
                receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)
            [message] = await inbox.receive(1)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]
        assert message.routing_key == "due.now"

    async def test_only_the_event_that_cannot_be_sent_is_unsendable(self, rabbitmq_url: str, inbox: Inbox) -> None:
        events = make_events(4)
        events[0] = msgspec.structs.replace(events[0], subject="s" * 200_000)
        events[2] = msgspec.structs.replace(events[2], type="t" * 300)

        async with opened(make_publisher(rabbitmq_url, inbox.exchange)) as publisher:
            receipt = await publisher.publish(events, deadline=TIMEOUT)

        assert receipt.outcomes == [
            PublishOutcome.UNSENDABLE,
            PublishOutcome.CONFIRMED,
            PublishOutcome.UNSENDABLE,
            PublishOutcome.CONFIRMED,
        ]
        assert receipt.error.startswith("cannot be sent: its attributes take")
        assert len(receipt.seconds) == 2
        assert ids(await inbox.receive(2)) == ["event-1", "event-3"]


class TestExchange:
    async def test_it_is_declared_durable(self, rabbitmq_url: str) -> None:
        name = unique("exchange")

        # The second declaration would be refused if it differed from the first in anything.
        async with (
            opened(make_publisher(rabbitmq_url, name, exchange_type="topic")) as publisher,
            open_inbox(rabbitmq_url, exchange=name, exchange_type="topic", durable=True),
        ):
            receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]

    async def test_an_exchange_of_another_type_is_an_error_naming_both(self, rabbitmq_url: str) -> None:
        async with open_inbox(rabbitmq_url, exchange_type="topic") as inbox:
            publisher = make_publisher(rabbitmq_url, inbox.exchange, exchange_type="fanout")

            with pytest.raises(Misconfigured) as refused:
                await publisher.open()

        assert f"exchange '{inbox.exchange}': expected a durable one of type fanout" in str(refused.value)
        assert "current is 'topic'" in str(refused.value)

    async def test_an_exchange_that_is_not_durable_is_an_error(self, rabbitmq_url: str) -> None:
        async with open_inbox(rabbitmq_url, durable=False) as inbox:
            with pytest.raises(Misconfigured, match="durable"):
                await make_publisher(rabbitmq_url, inbox.exchange).open()

    async def test_an_unknown_exchange_type_is_an_error(self, rabbitmq_url: str) -> None:
        with pytest.raises(Misconfigured, match="invalid exchange type 'round'"):
            await make_publisher(rabbitmq_url, unique("exchange"), exchange_type="round").open()

    async def test_an_exchange_name_that_is_not_ascii_is_an_error(self, rabbitmq_url: str) -> None:
        with pytest.raises(Misconfigured, match="exchange 'née'"):
            await make_publisher(rabbitmq_url, "née").open()

    async def test_a_failed_open_leaves_nothing_running(self, rabbitmq_url: str) -> None:
        async with BrokerProxy(rabbitmq_url) as proxy:
            publisher = make_publisher(proxy.url, "amq.topic")
            with pytest.raises(Misconfigured):
                await publisher.open()

            assert publisher.unavailable_reason() == "the publisher is not open"
            assert proxy.accepted == 1

    async def test_a_predeclared_exchange_of_the_right_type_is_used(self, rabbitmq_url: str) -> None:
        async with opened(make_publisher(rabbitmq_url, "amq.fanout")) as publisher:
            assert publisher.unavailable_reason() is None

    async def test_an_unknown_exchange_with_a_reserved_name_is_an_error(self, rabbitmq_url: str) -> None:
        with pytest.raises(Misconfigured, match=r"no exchange 'amq\.made-up'.*reserved prefix"):
            await make_publisher(rabbitmq_url, "amq.made-up").open()

    async def test_the_default_exchange_needs_no_declaration(self, rabbitmq_url: str, inbox: Inbox) -> None:
        publisher = make_publisher(rabbitmq_url, "", exchange_type="direct", routing_key=inbox.queue)

        async with opened(publisher):
            receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]
        assert ids(await inbox.receive(1)) == ["event-0"]

    async def test_a_deleted_exchange_is_declared_again(self, rabbitmq_url: str, inbox: Inbox) -> None:
        async with opened(make_publisher(rabbitmq_url, inbox.exchange)) as publisher:
            await inbox.delete_exchange()
            lost = await publisher.publish(make_events(1), deadline=TIMEOUT)
            found = await publish_once_connected(publisher, make_events(1))

        assert lost.outcomes == [PublishOutcome.UNCONFIRMED]
        assert "no exchange" in lost.error
        assert found.outcomes == [PublishOutcome.UNROUTABLE]


class TestOutcomes:
    async def test_thousands_of_events_are_confirmed_with_a_small_window(
        self, rabbitmq_url: str, inbox: Inbox
    ) -> None:
        events = make_events(3_000)

        async with opened(make_publisher(rabbitmq_url, inbox.exchange, window=100)) as publisher:
            receipt = await publisher.publish(events, deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 3_000
        assert len(receipt.seconds) == 3_000
        assert ids(await inbox.receive(3_000)) == [event.id for event in events]

    async def test_without_a_queue_events_are_unroutable(self, rabbitmq_url: str, inbox: Inbox) -> None:
        await inbox.unbind()

        async with opened(make_publisher(rabbitmq_url, inbox.exchange, routing_key="key")) as publisher:
            receipt = await publisher.publish(make_events(600, padding=300), deadline=TIMEOUT)

            assert publisher.unavailable_reason() is None
        assert receipt.outcomes == [PublishOutcome.UNROUTABLE] * 600
        assert receipt.error == f"exchange '{inbox.exchange}' has no queue for routing key 'key'"

    async def test_a_large_unroutable_event_does_not_affect_the_next(
        self, rabbitmq_url: str, inbox: Inbox
    ) -> None:
        await inbox.unbind()

        async with opened(make_publisher(rabbitmq_url, inbox.exchange)) as publisher:
            unroutable = await publisher.publish(make_events(2, padding=400_000), deadline=TIMEOUT)
            await inbox.bind()
            routed = await publisher.publish(make_events(2, first=2), deadline=TIMEOUT)

        assert unroutable.outcomes == [PublishOutcome.UNROUTABLE] * 2
        assert routed.outcomes == [PublishOutcome.CONFIRMED] * 2

    async def test_events_that_a_full_queue_rejects_are_refused(self, rabbitmq_url: str) -> None:
        full: dict[str, int | str] = {"x-max-length": 5, "x-overflow": "reject-publish"}
        events = make_events(300)

        async with open_inbox(rabbitmq_url, arguments=full) as inbox:
            async with opened(make_publisher(rabbitmq_url, inbox.exchange)) as publisher:
                receipt = await publisher.publish(events, deadline=TIMEOUT)
            messages = await inbox.receive_all()

        assert set(receipt.outcomes) == {PublishOutcome.CONFIRMED, PublishOutcome.REFUSED}
        assert confirmed(events, receipt) == set(ids(messages))
        assert receipt.error == "refused by a queue, perhaps because it is full"

    async def test_at_most_the_window_is_unconfirmed(self, rabbitmq_url: str, inbox: Inbox) -> None:
        loop_time = LoopTime()

        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange, window=10, heartbeat=HOUR)) as publisher,
        ):
            proxy.hold_responses()
            publishing = asyncio.create_task(publisher.publish(make_events(100), deadline=TIMEOUT))
            await eventually(lambda: proxy.published >= 10)
            loop_time.advance(TIMEOUT)
            receipt = await publishing

            assert receipt.outcomes == [PublishOutcome.UNCONFIRMED] * 100
            assert receipt.error == "no response within 60s"
            assert proxy.published == 10
            proxy.release_responses()

    async def test_late_confirms_do_not_count_for_the_next_batch(self, rabbitmq_url: str, inbox: Inbox) -> None:
        events, loop_time = make_events(40), LoopTime()

        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange, window=20, heartbeat=HOUR)) as publisher,
        ):
            proxy.hold_responses()
            publishing = asyncio.create_task(publisher.publish(events[:15], deadline=TIMEOUT))
            await eventually(lambda: proxy.published >= 15)
            loop_time.advance(TIMEOUT)
            first = await publishing
            publishing = asyncio.create_task(publisher.publish(events[15:30], deadline=TIMEOUT))
            await eventually(lambda: proxy.published >= 20)
            loop_time.advance(TIMEOUT)
            second = await publishing
            in_flight = proxy.published
            proxy.release_responses()
            receipt = await publisher.publish(events[30:], deadline=TIMEOUT)

            assert proxy.accepted == 1
        assert {*first.outcomes, *second.outcomes} == {PublishOutcome.UNCONFIRMED}
        assert in_flight == 20
        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 10
        assert confirmed(events[30:], receipt) <= set(ids(await inbox.receive_all()))

    async def test_a_deadline_that_has_passed_sends_nothing(self, rabbitmq_url: str, inbox: Inbox) -> None:
        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange)) as publisher,
        ):
            receipt = await publisher.publish(make_events(3), deadline=timedelta(0))

            assert receipt.outcomes == [PublishOutcome.UNCONFIRMED] * 3
            assert proxy.published == 0

    async def test_cancelling_leaves_the_publisher_usable(self, rabbitmq_url: str, inbox: Inbox) -> None:
        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange, window=20)) as publisher,
        ):
            proxy.hold_responses()
            publishing = asyncio.create_task(publisher.publish(make_events(100), deadline=TIMEOUT))
            await eventually(lambda: proxy.published >= 20)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            proxy.release_responses()
            receipt = await publisher.publish(make_events(100, first=100), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 100

    async def test_nothing_of_an_abandoned_batch_is_sent_later(self, rabbitmq_url: str, inbox: Inbox) -> None:
        events = make_large_events(1_000, padding=20_000)  # more than all buffers on the way hold
        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange, window=1_000)) as publisher,
        ):
            proxy.hold_requests()
            publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
            await asyncio.wait([publishing], timeout=SHORT.total_seconds())

            publisher.abandon()
            receipt = await publishing
            proxy.release_requests()
            await eventually(lambda: proxy.has_been_reset)
            again = await publish_once_connected(publisher, make_events(1))

        assert receipt.outcomes.count(PublishOutcome.UNCONFIRMED) > 900, "a few were on their way before the stall"
        assert "abandoned" in receipt.error
        assert again.outcomes == [PublishOutcome.CONFIRMED]

    async def test_an_abandoned_batch_is_not_sent_by_the_next_connection(
        self, rabbitmq_url: str, inbox: Inbox
    ) -> None:
        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange)) as publisher,
        ):
            proxy.hold_responses()
            await proxy.cut()
            await proxy.accept()
            await eventually(lambda: proxy.accepted == 2)
            publishing = asyncio.create_task(publisher.publish(make_events(1), deadline=TIMEOUT))
            await asyncio.sleep(0)

            publisher.abandon()
            proxy.release_responses()
            receipt = await publishing
            await publish_once_connected(publisher, make_events(1, first=1))

        assert receipt.outcomes == [PublishOutcome.UNCONFIRMED]
        assert len(await inbox.receive_all()) == 1


class TestConnection:
    async def test_a_broker_that_starts_later_is_found(self, rabbitmq_url: str, inbox: Inbox) -> None:
        observed: list[Connectivity] = []

        async with BrokerProxy(rabbitmq_url) as proxy:
            await proxy.cut()
            async with opened(make_publisher(proxy.url, inbox.exchange, observe=observed.append)) as publisher:
                before = await publisher.publish(make_events(1), deadline=TIMEOUT)
                unavailable_reason = publisher.unavailable_reason()
                await proxy.accept()
                after = await publish_once_connected(publisher, make_events(1))

        assert before.outcomes == [PublishOutcome.UNCONFIRMED]
        assert before.error == unavailable_reason
        assert unavailable_reason is not None
        assert unavailable_reason.startswith(f"127.0.0.1:{proxy.port}: Connect call failed")
        assert after.outcomes == [PublishOutcome.CONFIRMED]
        assert [change.is_connected for change in observed] == [False, True]

    async def test_a_broker_that_never_answers_does_not_block_open(self) -> None:
        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
        async with server:
            publisher = make_publisher(url_of(server.sockets[0].getsockname()[1]), "events")
            await asyncio.wait_for(publisher.open(), TIMEOUT.total_seconds())
            receipt = await publisher.publish(make_events(1), deadline=SHORT)
            await publisher.close()

        assert receipt.outcomes == [PublishOutcome.UNCONFIRMED]
        assert "still connecting" in receipt.error

    async def test_confirmed_events_survive_a_connection_lost_during_a_batch(
        self, rabbitmq_url: str, inbox: Inbox
    ) -> None:
        events = make_events(5_000)

        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange)) as publisher,
        ):
            publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
            await eventually(lambda: len(proxy.sent) > 500_000)
            await proxy.cut()
            receipt = await publishing
            await proxy.accept()
            again = await publish_once_connected(publisher, make_events(1, first=5_000))

        assert PublishOutcome.CONFIRMED in receipt.outcomes
        assert PublishOutcome.UNCONFIRMED in receipt.outcomes
        assert receipt.error.startswith("connection lost: ")
        assert again.outcomes == [PublishOutcome.CONFIRMED]
        assert confirmed(events, receipt) <= set(ids(await inbox.receive_all()))

    async def test_a_connection_lost_between_batches_is_restored(self, rabbitmq_url: str, inbox: Inbox) -> None:
        observed: list[Connectivity] = []

        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange, observe=observed.append)) as publisher,
        ):
            await proxy.cut()
            await eventually(lambda: publisher.unavailable_reason() is not None)
            await proxy.accept()
            receipt = await publish_once_connected(publisher, make_events(10))

        assert receipt.outcomes == [PublishOutcome.CONFIRMED] * 10
        assert observed[0].is_connected
        assert "connection lost" in observed[1].reason
        assert observed[-1].is_connected

    async def test_a_silent_peer_is_disconnected(self, rabbitmq_url: str, inbox: Inbox) -> None:
        heartbeat, loop_time = timedelta(minutes=1), LoopTime()

        async with BrokerProxy(rabbitmq_url) as proxy:
            publisher = make_publisher(proxy.url, inbox.exchange, heartbeat=heartbeat)
            async with opened(publisher):
                proxy.hold_responses()
                publishing = asyncio.create_task(publisher.publish(make_events(1), deadline=1.5 * heartbeat))
                await eventually(lambda: proxy.published >= 1)
                loop_time.advance(1.5 * heartbeat)
                silent = await publishing
                unavailable_reason = publisher.unavailable_reason()
                proxy.release_responses()
                receipt = await publish_once_connected(publisher, make_events(1, first=1))

                assert proxy.accepted == 2
        assert silent.outcomes == [PublishOutcome.UNCONFIRMED]
        assert unavailable_reason is not None
        assert "no response for" in unavailable_reason
        assert receipt.outcomes == [PublishOutcome.CONFIRMED]

    async def test_a_wrong_password_is_retried_and_never_shown(
        self, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        observed: list[Connectivity] = []

        async with BrokerProxy(url_of(RABBITMQ_PORT, user=("guest", "s3cr3t/+ %41"))) as proxy:
            publisher = make_publisher(proxy.url, "events", observe=observed.append)
            async with opened(publisher):
                await eventually(lambda: proxy.accepted > 1)
                receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)
                unavailable_reason = publisher.unavailable_reason()

        assert receipt.outcomes == [PublishOutcome.UNCONFIRMED]
        assert unavailable_reason is not None
        assert "ACCESS_REFUSED - Login was refused" in unavailable_reason
        assert len(observed) == 1
        shown = f"{receipt} {unavailable_reason} {observed} {publisher!r} {caplog.text}"
        assert "s3cr3t" not in shown

    async def test_an_unknown_virtual_host_is_named(self, rabbitmq_url: str) -> None:
        async with opened(make_publisher(url_of(RABBITMQ_PORT, vhost="no/where"), "events")) as publisher:
            unavailable_reason = publisher.unavailable_reason()

        assert (
            unavailable_reason == f"127.0.0.1:{RABBITMQ_PORT}: virtual host 'no/where' does not exist, "
            "or this user has no access to it"
        )

    async def test_close_ends_a_publish_that_waits_for_a_connection(self) -> None:
        slow = Backoff(initial=TIMEOUT, maximum=TIMEOUT)
        publisher = RabbitMQPublisher(url=url_of(1), exchange="e", exchange_type="fanout", reconnect=slow)
        await publisher.open()

        publishing = asyncio.create_task(publisher.publish(make_events(1), deadline=TIMEOUT))
        await asyncio.sleep(0)
        await publisher.close()
        receipt = await publishing

        assert receipt.outcomes == [PublishOutcome.UNCONFIRMED]
        assert receipt.error == "the publisher is not open"

    async def test_close_ends_the_connection_and_may_be_repeated(self, rabbitmq_url: str, inbox: Inbox) -> None:
        async with BrokerProxy(rabbitmq_url) as proxy:
            publisher = make_publisher(proxy.url, inbox.exchange)
            await publisher.open()

            await publisher.close()
            await publisher.close()

            await eventually(lambda: proxy.open == 0)
            assert proxy.accepted == 1

    async def test_a_closed_publisher_can_be_opened_again(self, rabbitmq_url: str, inbox: Inbox) -> None:
        publisher = make_publisher(rabbitmq_url, inbox.exchange)
        async with opened(publisher):
            await publisher.publish(make_events(1), deadline=TIMEOUT)

        async with opened(publisher):
            receipt = await publisher.publish(make_events(1, first=1), deadline=TIMEOUT)

        assert receipt.outcomes == [PublishOutcome.CONFIRMED]
        assert ids(await inbox.receive(2)) == ["event-0", "event-1"]

    async def test_opening_twice_makes_one_connection(self, rabbitmq_url: str, inbox: Inbox) -> None:
        async with (
            BrokerProxy(rabbitmq_url) as proxy,
            opened(make_publisher(proxy.url, inbox.exchange)) as publisher,
        ):
            await publisher.open()

            assert proxy.accepted == 1


class TestAddress:
    @pytest.mark.parametrize(
        ("host", "vhost", "password", "tls", "expected"),
        [
            ("rabbit", "/", "secret", False, "amqp://user:secret@rabbit:5672/%2F"),
            ("rabbit", "a/b c", "p@ss:w/rd%", True, "amqps://user:p%40ss%3Aw%2Frd%25@rabbit:5672/a%2Fb%20c"),
            ("::1", "fleet", "é", False, "amqp://user:%C3%A9@[::1]:5672/fleet"),
        ],
    )
    def test_every_part_of_the_url_is_quoted(
        self, host: str, vhost: str, password: str, tls: bool, expected: str
    ) -> None:
        url = amqp_url(host=host, port=5672, vhost=vhost, username="user", password=password, tls=tls)

        assert url == expected

    @pytest.mark.parametrize("url", ["amqp://user:secret@/fleet", "amqp://"])
    def test_the_host_defaults_to_localhost(self, url: str) -> None:
        assert BrokerAddress(url=url).broker == "localhost:5672"

    def test_a_window_of_zero_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="window: expected 1 or more, got 0"):
            make_publisher(url_of(1), "events", window=0)

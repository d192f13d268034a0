"""The Pub/Sub publisher on Google's emulator; published messages are pulled and read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.formats.json import JSONFormat
from google.pubsub_v1.types import PubsubMessage

from sentinel.core.events import Event, Mode
from sentinel.drivers.pubsub.publish_requests import MAX_BYTES, RequestLimits
from sentinel.drivers.pubsub.publisher import RETRY
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, PublishOutcome, Receipt
from tests.contract.publisher import CONTENT_TYPES, attributes_of, check_attributes
from tests.support.brokers import pubsub
from tests.support.brokers.pubsub import Inbox, open_inbox, opened_publisher
from tests.support.brokers.rabbitmq import BrokerProxy, eventually, make_events, unique

TIMEOUT = timedelta(seconds=30)
SHORT = timedelta(milliseconds=150)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MANY = 5_000
HALF_SENT = 1_500_000
"""Bytes of about half the events: by then some are confirmed and many are not."""


@pytest.fixture
def host() -> str:
    return pubsub.emulator_host()


@pytest.fixture
async def inbox(host: str) -> AsyncIterator[Inbox]:
    async with open_inbox(host) as made:
        yield made


@pytest.fixture(scope="module")
def private() -> Iterator[pubsub.PrivateEmulator]:
    with pubsub.private_emulator() as emulator:
        yield emulator


def ids(messages: list[PubsubMessage]) -> list[str]:
    return [message.attributes["ce-id"] for message in messages]


def split(events: list[Event], receipt: Receipt) -> tuple[list[Event], list[Event]]:
    """Return the confirmed events and the others."""
    outcomes = list(zip(events, receipt.outcomes, strict=True))
    return (
        [event for event, outcome in outcomes if outcome is PublishOutcome.CONFIRMED],
        [event for event, outcome in outcomes if outcome is not PublishOutcome.CONFIRMED],
    )


class TestMessages:
    @pytest.mark.parametrize(("mode", "content_type"), CONTENT_TYPES.items())
    async def test_a_message_carries_the_event_in_its_attributes(
        self, host: str, inbox: Inbox, mode: Mode, content_type: str
    ) -> None:
        async with opened_publisher(host, inbox.topic, mode=mode) as publisher:
            await publisher.publish(make_events(1), deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        attributes = {f"ce-{name}": value for name, value in attributes_of(0).items()}
        assert dict(message.attributes) == {**attributes, "content-type": content_type}
        assert message.ordering_key == ""

    @pytest.mark.parametrize("mode", Mode)
    async def test_the_sdk_reads_a_message_as_the_event(self, host: str, inbox: Inbox, mode: Mode) -> None:
        [event] = make_events(1)
        traced = msgspec.structs.replace(event, traceparent=TRACE)

        async with opened_publisher(host, inbox.topic, mode=mode) as publisher:
            await publisher.publish([traced], deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        # The Pub/Sub binding is the HTTP binding with attributes instead of headers.
        read_by = from_structured if mode is Mode.STRUCTURED else from_binary
        read = read_by(HTTPMessage(dict(message.attributes), message.data), JSONFormat())
        check_attributes(read, 0)
        assert read.get_data() == {"resource_id": "cls-0", "padding": ""}
        assert read.get_extension("traceparent") == TRACE

    async def test_in_binary_mode_the_body_is_the_data(self, host: str, inbox: Inbox) -> None:
        [event] = make_events(1)

        async with opened_publisher(host, inbox.topic, mode=Mode.BINARY) as publisher:
            await publisher.publish([event], deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        assert message.data == bytes(event.data)

    async def test_an_event_that_is_too_large_does_not_block_others(self, host: str, inbox: Inbox) -> None:
        events = [*make_events(1), *make_events(1, first=1, padding=MAX_BYTES), *make_events(1, first=2)]

        async with opened_publisher(host, inbox.topic) as publisher:
            receipt = await publisher.publish(events, deadline=TIMEOUT)

        assert list(receipt.outcomes) == [
            PublishOutcome.CONFIRMED,
            PublishOutcome.UNSENDABLE,
            PublishOutcome.CONFIRMED,
        ]
        assert receipt.error.startswith("cannot be sent: it takes 10000")
        assert ids(await inbox.receive(2)) == ["event-0", "event-2"]

    async def test_an_event_that_just_fits_is_delivered(self, host: str, inbox: Inbox) -> None:
        [event] = make_events(1, padding=MAX_BYTES - 2_000)

        async with opened_publisher(host, inbox.topic) as publisher:
            receipt = await publisher.publish([event], deadline=TIMEOUT)
        [message] = await inbox.receive(1)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED], receipt.error
        assert msgspec.json.decode(message.data)["data"] == msgspec.json.decode(event.data)

    async def test_with_an_ordering_key_events_arrive_in_order(self, host: str) -> None:
        events = make_events(1_000)

        async with open_inbox(host, is_ordered=True) as inbox:
            async with opened_publisher(
                host, inbox.topic, ordering_key="fleet", limits=RequestLimits(count=50)
            ) as publisher:
                receipt = await publisher.publish(events, deadline=TIMEOUT)
            messages = await inbox.receive(len(events))

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * len(events)
        assert {message.ordering_key for message in messages} == {"fleet"}
        assert ids(messages) == [event.id for event in events]


class TestTopic:
    async def test_open_names_a_missing_topic(self, host: str) -> None:
        topic = unique("topic")

        with pytest.raises(Misconfigured, match=f"projects/{pubsub.PROJECT}/topics/{topic}.*NOT_FOUND.*create it"):
            async with opened_publisher(host, topic):
                pass

    async def test_open_reports_an_invalid_topic_name(self, host: str) -> None:
        with pytest.raises(Misconfigured, match="INVALID_ARGUMENT"):
            async with opened_publisher(host, "no topic"):
                pass

    async def test_a_missing_topic_is_created_if_allowed(self, host: str) -> None:
        async with open_inbox(host, is_created=False) as inbox:
            async with opened_publisher(host, inbox.topic, create_topic=True) as publisher:
                await inbox.subscribe()
                receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)
            messages = await inbox.receive(1)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
        assert ids(messages) == ["event-0"]

    async def test_an_existing_topic_is_used(self, host: str, inbox: Inbox) -> None:
        async with opened_publisher(host, inbox.topic, create_topic=True) as publisher:
            await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert ids(await inbox.receive(1)) == ["event-0"]

    async def test_a_deleted_topic_is_unavailable_until_it_is_back(self, host: str, inbox: Inbox) -> None:
        observed: list[Connectivity] = []

        async with opened_publisher(host, inbox.topic, observe=observed.append) as publisher:
            await inbox.delete_topic()
            refused = await publisher.publish(make_events(3), deadline=TIMEOUT)
            await eventually(lambda: publisher.unavailable_reason() is not None)
            unavailable_reason = publisher.unavailable_reason() or ""
            await inbox.create_topic()
            await eventually(lambda: publisher.unavailable_reason() is None)
            again = await publisher.publish(make_events(3), deadline=TIMEOUT)

        assert list(refused.outcomes) == [PublishOutcome.REFUSED] * 3
        assert "NOT_FOUND" in refused.error
        assert inbox.topic in unavailable_reason
        assert list(again.outcomes) == [PublishOutcome.CONFIRMED] * 3
        assert [change.is_connected for change in observed] == [True, False, True]

    async def test_a_deleted_topic_is_created_again_if_allowed(self, host: str, inbox: Inbox) -> None:
        async with opened_publisher(host, inbox.topic, create_topic=True) as publisher:
            await inbox.delete_topic()
            receipt = await publisher.publish(make_events(3), deadline=TIMEOUT)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 3

    async def test_a_topic_without_subscriptions_accepts_events(self, host: str) -> None:
        async with opened_publisher(host, unique("topic"), create_topic=True) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=TIMEOUT)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 2


class TestConnection:
    async def test_without_a_response_events_are_unconfirmed(self, host: str, inbox: Inbox) -> None:
        async with (
            BrokerProxy(f"tcp://{host}") as proxy,
            opened_publisher(f"127.0.0.1:{proxy.port}", inbox.topic) as publisher,
        ):
            proxy.hold_responses()
            receipt = await publisher.publish(make_events(3), deadline=SHORT)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 3
        assert receipt.error == "no response within 0.15s"
        assert receipt.seconds == []

    async def test_a_short_outage_is_retried_within_the_deadline(self, host: str, inbox: Inbox) -> None:
        events = make_events(500)

        async with (
            BrokerProxy(f"tcp://{host}") as proxy,
            opened_publisher(
                f"127.0.0.1:{proxy.port}", inbox.topic, limits=RequestLimits(count=10), retry=RETRY
            ) as publisher,
        ):
            sent = len(proxy.sent)
            publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
            await eventually(lambda: len(proxy.sent) > sent)
            await proxy.cut()
            await proxy.accept()
            receipt = await publishing

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * len(events), receipt.error

    async def test_an_idle_connection_that_is_lost_is_restored(self, host: str, inbox: Inbox) -> None:
        observed: list[Connectivity] = []

        async with (
            BrokerProxy(f"tcp://{host}") as proxy,
            opened_publisher(f"127.0.0.1:{proxy.port}", inbox.topic, observe=observed.append) as publisher,
        ):
            await proxy.cut()
            await eventually(lambda: publisher.unavailable_reason() is not None)
            await proxy.accept()
            await eventually(lambda: publisher.unavailable_reason() is None)

        assert observed[0].is_connected
        assert "UNAVAILABLE" in observed[1].reason
        assert observed[-1].is_connected

    async def test_close_ends_a_publish_in_progress(self, host: str, inbox: Inbox) -> None:
        async with (
            BrokerProxy(f"tcp://{host}") as proxy,
            opened_publisher(f"127.0.0.1:{proxy.port}", inbox.topic) as publisher,
        ):
            proxy.hold_responses()
            sent = len(proxy.sent)
            publishing = asyncio.create_task(publisher.publish(make_events(3), deadline=TIMEOUT))
            await eventually(lambda: len(proxy.sent) > sent)
            await publisher.close()
            receipt = await asyncio.wait_for(publishing, timeout=TIMEOUT.total_seconds())

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 3
        assert receipt.error == "the publisher is not open"

    async def test_a_publisher_can_be_opened_again(self, host: str, inbox: Inbox) -> None:
        async with opened_publisher(host, inbox.topic) as publisher:
            await publisher.close()
            await publisher.open()
            receipt = await publisher.publish(make_events(1), deadline=TIMEOUT)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]


class TestEmulatorKilled:
    async def test_unconfirmed_events_are_known_and_publishing_recovers(
        self, private: pubsub.PrivateEmulator
    ) -> None:
        events = make_events(MANY)
        topic = unique("topic")

        async with (
            BrokerProxy(f"tcp://{private.host}") as proxy,
            opened_publisher(
                f"127.0.0.1:{proxy.port}", topic, create_topic=True, limits=RequestLimits(count=50)
            ) as publisher,
        ):
            async with open_inbox(private.host, topic=topic, is_created=False) as before:
                await before.subscribe()
                publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
                await eventually(lambda: len(proxy.sent) > HALF_SENT)
                # From here on the emulator accepts more than the publisher knows; all of that is received.
                proxy.hold_responses()
                taken = {message.attributes["ce-id"] for message in await before.receive_waiting()}
                await private.kill()
            await proxy.cut()
            receipt = await publishing
            unavailable_reason = publisher.unavailable_reason()
            await private.start()
            proxy.release_responses()
            await proxy.accept()
            await eventually(lambda: publisher.unavailable_reason() is None)
            confirmed, others = split(events, receipt)
            async with open_inbox(private.host, topic=topic, is_created=False) as after:
                await after.subscribe()
                again = await publisher.publish(others, deadline=TIMEOUT)
                received = ids(await after.receive(len(others)))

        assert confirmed
        assert others
        assert {event.id for event in confirmed} <= taken
        assert "UNAVAILABLE" in receipt.error
        assert unavailable_reason
        assert list(again.outcomes) == [PublishOutcome.CONFIRMED] * len(others)
        assert sorted(received) == sorted(event.id for event in others)

"""The contract of every `ports.publisher.Publisher`.

A driver's test module inherits the suites that apply to it and provides a `harness`: `PublisherContract` always,
`RoutingContract` if events can be unroutable, `StallingContract` if the broker can stop accepting events, and
`ConnectionContract` if there is a connection to lose.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp
from cloudevents.core.formats.json import JSONFormat

from sentinel.core.events import DATA_CONTENT_TYPE, STRUCTURED_CONTENT_TYPE, Event, Mode
from sentinel.ports.publisher import Publisher, PublishOutcome, Receipt
from sentinel.ports.subscription import Message
from tests.contract.connection import LosesConnections, opened

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

TIMEOUT = timedelta(seconds=20)
SHORT = timedelta(milliseconds=150)
MANY, FEW = 3_000, 10
"""When FEW of MANY events have arrived, most are usually still in flight."""
CONTENT_TYPES = {Mode.STRUCTURED: STRUCTURED_CONTENT_TYPE, Mode.BINARY: DATA_CONTENT_TYPE}
ATTEMPTS = 100
"""Attempts while a driver reconnects; each lasts at most `TIMEOUT`."""


class PublisherHarness(ABC):
    """A broker under test control, initially with a route for events."""

    modes: Sequence[Mode] = (Mode.STRUCTURED, Mode.BINARY)

    @abstractmethod
    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        """Return a publisher that is not open yet."""

    @abstractmethod
    async def receive(self, count: int) -> list[Message]:
        """Receive the next `count` messages in the broker's order."""


class RoutingHarness(PublisherHarness):
    """A broker whose routes can be removed."""

    @abstractmethod
    async def unbind(self) -> None:
        """Remove all routes."""

    @abstractmethod
    async def bind(self) -> None:
        """Add a route again."""


class StallingHarness(PublisherHarness):
    """A broker that can stop accepting events."""

    @abstractmethod
    async def stall(self) -> None:
        """Stop accepting events, except for those that fit into buffers."""

    @abstractmethod
    async def resume(self) -> None:
        """Accept events again."""

    batch_that_stalls: int = 1
    """More events than fit into those buffers."""


class ConnectionHarness(PublisherHarness, LosesConnections):
    @abstractmethod
    async def receive_waiting(self) -> list[Message]:
        """Receive all messages that the broker has now."""


def make_event(number: int, *, traceparent: str = "", padding: int = 0) -> Event:
    data = {"resource_id": f"cls-{number}", "naïve": "ünïcode ✓", "padding": "x" * padding}
    return Event(
        id=f"event-{number}",
        type="com.redhat.hyperfleet.cluster.reconcile",
        subject=f"cls-{number}",
        time="2026-03-01T12:00:00.250000Z",
        data=msgspec.Raw(msgspec.json.encode(data)),
        traceparent=traceparent,
    )


def make_events(count: int, *, padding: int = 0) -> list[Event]:
    return [make_event(number, padding=padding) for number in range(count)]


def parse(message: Message) -> BaseCloudEvent:
    """Parse a message with the CloudEvents SDK, as a consumer would."""
    properties = {f"cloudEvents:{name}": value for name, value in message.attributes.items()}
    return from_amqp(AMQPMessage({"content-type": message.content_type}, properties, message.body), JSONFormat())


def attributes_of(number: int) -> dict[str, str]:
    """The attributes of the event that `make_event` returns."""
    return {
        "specversion": "1.0",
        "id": f"event-{number}",
        "source": "hyperfleet-sentinel",
        "type": "com.redhat.hyperfleet.cluster.reconcile",
        "subject": f"cls-{number}",
        "time": "2026-03-01T12:00:00.250000Z",
        "datacontenttype": DATA_CONTENT_TYPE,
    }


def check_attributes(read: BaseCloudEvent, number: int) -> None:
    """Check that the SDK reads the attributes of the event that `make_event` returns."""
    time = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    got = {name: value for name, value in read.get_attributes().items() if name != "traceparent"}
    assert got == attributes_of(number) | {"time": time}


def ids(messages: Sequence[Message]) -> list[str]:
    return [parse(message).get_id() for message in messages]


async def publish(harness: PublisherHarness, events: list[Event], deadline: timedelta = TIMEOUT) -> Receipt:
    """Publish with a new publisher."""
    async with opened(harness.publisher()) as publisher:
        return await publisher.publish(events, deadline=deadline)


async def publish_until_confirmed(publisher: Publisher, event: Event) -> Receipt:
    """Publish one event, with retries, until the broker confirms it."""
    for _ in range(ATTEMPTS):
        receipt = await publisher.publish([event], deadline=TIMEOUT)
        if receipt.outcomes == [PublishOutcome.CONFIRMED]:
            return receipt
        await asyncio.sleep(0.05)
    raise AssertionError(f"not confirmed after {ATTEMPTS} attempts: {receipt.error}")


class PublisherContract:
    """For every driver."""

    async def test_every_event_is_confirmed_and_delivered_once(self, harness: PublisherHarness) -> None:
        events = make_events(3)

        receipt = await publish(harness, events)

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 3
        assert receipt.error == ""
        assert sorted(ids(await harness.receive(3))) == ["event-0", "event-1", "event-2"]

    async def test_each_confirmed_event_has_its_duration(self, harness: PublisherHarness) -> None:
        receipt = await publish(harness, make_events(3))

        assert len(receipt.seconds) == 3
        assert all(seconds >= 0 for seconds in receipt.seconds)

    async def test_an_empty_batch_has_an_empty_receipt(self, harness: PublisherHarness) -> None:
        receipt = await publish(harness, [])

        assert receipt == Receipt([], [])

    async def test_a_large_batch_arrives_complete(self, harness: PublisherHarness) -> None:
        events = make_events(2_000)

        async with opened(harness.publisher()) as publisher:
            # Read while publishing: a pipe blocks once its buffer is full.
            reading = asyncio.create_task(harness.receive(len(events)))
            receipt = await publisher.publish(events, deadline=TIMEOUT)
            received = await reading

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED] * 2_000
        assert sorted(ids(received)) == sorted(event.id for event in events)

    async def test_a_large_event_arrives_complete(self, harness: PublisherHarness) -> None:
        event = make_event(1, padding=1_000_000)

        async with opened(harness.publisher()) as publisher:
            reading = asyncio.create_task(harness.receive(1))
            receipt = await publisher.publish([event], deadline=TIMEOUT)
            received = await reading

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
        assert parse(received[0]).get_data() == msgspec.json.decode(event.data)

    async def test_batches_arrive_in_order(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            first = await publisher.publish([make_event(1)], deadline=TIMEOUT)
            second = await publisher.publish([make_event(2)], deadline=TIMEOUT)

        assert [*first.outcomes, *second.outcomes] == [PublishOutcome.CONFIRMED] * 2
        assert ids(await harness.receive(2)) == ["event-1", "event-2"]

    async def test_every_mode_is_a_valid_cloud_event(self, harness: PublisherHarness) -> None:
        for mode in harness.modes:
            event = make_event(7)

            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([event], deadline=TIMEOUT)
            [message] = await harness.receive(1)

            read = parse(message)
            check_attributes(read, 7)
            assert read.get_data() == msgspec.json.decode(event.data)

    async def test_the_content_type_follows_the_mode(self, harness: PublisherHarness) -> None:
        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1)], deadline=TIMEOUT)
            [message] = await harness.receive(1)

            assert message.content_type == CONTENT_TYPES[mode]

    async def test_every_mode_has_the_attributes_as_headers(self, harness: PublisherHarness) -> None:
        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1)], deadline=TIMEOUT)
            [message] = await harness.receive(1)

            assert message.attributes == attributes_of(1)

    async def test_a_traceparent_belongs_to_its_event_only(self, harness: PublisherHarness) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1, traceparent=trace), make_event(2)], deadline=TIMEOUT)
            received = {parse(message).get_id(): parse(message) for message in await harness.receive(2)}

            assert received["event-1"].get_extension("traceparent") == trace
            assert received["event-2"].get_extension("traceparent") is None

    async def test_a_working_publisher_is_available(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))

            assert publisher.unavailable_reason() is None

    @pytest.mark.parametrize("was_open", [False, True], ids=["unopened", "closed"])
    async def test_a_publisher_that_is_not_open_confirms_nothing_and_is_unavailable(
        self, harness: PublisherHarness, was_open: bool
    ) -> None:
        publisher = harness.publisher()
        if was_open:
            await publisher.open()
            await publisher.close()

        receipt = await publisher.publish(make_events(2), deadline=SHORT)

        assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 2
        assert receipt.error
        assert publisher.unavailable_reason()

    async def test_closing_twice_is_harmless(self, harness: PublisherHarness) -> None:
        publisher = harness.publisher()
        await publisher.open()

        await publisher.close()
        await publisher.close()

    async def test_closing_without_opening_is_harmless(self, harness: PublisherHarness) -> None:
        await harness.publisher().close()

    async def test_an_expired_deadline_still_returns_a_receipt(self, harness: PublisherHarness) -> None:
        receipt = await publish(harness, make_events(3), deadline=timedelta(0))

        assert len(receipt.outcomes) == 3
        assert set(receipt.outcomes) <= {
            PublishOutcome.CONFIRMED,
            PublishOutcome.REFUSED,
            PublishOutcome.UNCONFIRMED,
        }

    async def test_the_broker_type_is_a_known_label_value(self, harness: PublisherHarness) -> None:
        assert harness.publisher().broker_type in {"rabbitmq", "gcp-pubsub", "stdout", "memory"}


class RoutingContract:
    """For brokers where events can be unroutable."""

    async def test_an_event_without_a_route_is_unroutable(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        receipt = await publish(harness, make_events(3))

        assert list(receipt.outcomes) == [PublishOutcome.UNROUTABLE] * 3
        assert receipt.error

    async def test_events_arrive_once_there_is_a_route(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        async with opened(harness.publisher()) as publisher:
            lost = await publisher.publish([make_event(1)], deadline=TIMEOUT)
            await harness.bind()
            routed = await publisher.publish([make_event(2)], deadline=TIMEOUT)

        assert list(lost.outcomes) == [PublishOutcome.UNROUTABLE]
        assert list(routed.outcomes) == [PublishOutcome.CONFIRMED]
        assert ids(await harness.receive(1)) == ["event-2"]

    async def test_missing_routes_do_not_make_it_unavailable(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        async with opened(harness.publisher()) as publisher:
            await publisher.publish([make_event(1)], deadline=TIMEOUT)

            assert publisher.unavailable_reason() is None


class StallingContract:
    """For brokers that can stop accepting events."""

    async def test_a_stalled_broker_returns_a_receipt_at_the_deadline(self, harness: StallingHarness) -> None:
        events = make_events(harness.batch_that_stalls)

        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            receipt = await asyncio.wait_for(publisher.publish(events, deadline=SHORT), TIMEOUT.total_seconds())
            await harness.resume()

        assert len(receipt.outcomes) == len(events)
        assert receipt.outcomes[-1] in (PublishOutcome.REFUSED, PublishOutcome.UNCONFIRMED)
        assert receipt.error

    async def test_publishing_continues_when_the_broker_does(self, harness: StallingHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            await publisher.publish(make_events(harness.batch_that_stalls), deadline=SHORT)
            await harness.resume()
            receipt = await publish_until_confirmed(publisher, make_event(1))

            assert receipt.error == ""
            assert publisher.unavailable_reason() is None

    async def test_cancellation_propagates_and_keeps_the_publisher_usable(self, harness: StallingHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            publishing = asyncio.create_task(
                publisher.publish(make_events(harness.batch_that_stalls), deadline=TIMEOUT)
            )
            await asyncio.wait([publishing], timeout=SHORT.total_seconds())
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            await harness.resume()
            receipt = await publish_until_confirmed(publisher, make_event(1))

        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]

    async def test_an_abandoned_batch_returns_at_once(self, harness: StallingHarness) -> None:
        events = make_events(harness.batch_that_stalls)
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            publishing = asyncio.create_task(publisher.publish(events, deadline=10 * TIMEOUT))
            await asyncio.wait([publishing], timeout=SHORT.total_seconds())

            publisher.abandon()
            receipt = await asyncio.wait_for(publishing, TIMEOUT.total_seconds())
            publisher.abandon()
            await harness.resume()
            again = await publish_until_confirmed(publisher, make_event(1))

        assert len(receipt.outcomes) == len(events)
        assert receipt.outcomes[-1] in (PublishOutcome.REFUSED, PublishOutcome.UNCONFIRMED)
        assert list(again.outcomes) == [PublishOutcome.CONFIRMED]


class ConnectionContract:
    """For brokers behind a connection."""

    async def test_opening_with_an_unreachable_broker_is_not_an_error(self, harness: ConnectionHarness) -> None:
        await harness.cut()

        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=SHORT)

            assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 2
            assert receipt.error
            assert publisher.unavailable_reason()

    async def test_the_publisher_reconnects_to_a_broker(self, harness: ConnectionHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.cut()
            lost = await publisher.publish([make_event(2)], deadline=SHORT)
            await harness.heal()
            await publish_until_confirmed(publisher, make_event(3))

            assert list(lost.outcomes) == [PublishOutcome.UNCONFIRMED]
            assert publisher.unavailable_reason() is None
        assert {"event-1", "event-3"} <= set(ids(await harness.receive_waiting()))

    async def test_the_publisher_connects_to_a_broker_that_starts_late(self, harness: ConnectionHarness) -> None:
        await harness.cut()

        async with opened(harness.publisher()) as publisher:
            await harness.heal()
            await publish_until_confirmed(publisher, make_event(1))

        assert ids(await harness.receive(1)) == ["event-1"]

    async def test_a_lost_connection_loses_no_confirmed_event(self, harness: ConnectionHarness) -> None:
        events = make_events(MANY)

        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(MANY))
            receiving = asyncio.create_task(harness.receive(FEW))
            publishing = asyncio.create_task(publisher.publish(events, deadline=TIMEOUT))
            received = ids(await receiving)
            await harness.cut()
            receipt = await publishing
            await harness.heal()
        received += ids(await harness.receive_waiting())

        outcomes = zip(events, receipt.outcomes, strict=True)
        confirmed = {event.id for event, outcome in outcomes if outcome is PublishOutcome.CONFIRMED}
        assert confirmed <= set(received)

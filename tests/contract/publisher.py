"""What every `ports.Publisher` promises.

A driver's test module inherits the suites that apply to it and gives a `harness`: `PublisherContract` always,
`RoutingContract` where a broker can have nowhere to put an event, `StallingContract` where it can stop taking
events, `ConnectionContract` where there is a connection to lose.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp
from cloudevents.core.formats.json import JSONFormat

from sentinel.core.events import DATA_CONTENT_TYPE, STRUCTURED_CONTENT_TYPE, Event, Mode
from sentinel.ports.publisher import Outcome, Publisher, Receipt
from sentinel.ports.subscription import Message

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

AMPLE = timedelta(seconds=20)
SHORT = timedelta(milliseconds=150)
MANY, FEW = 3_000, 10
"""So many events are as a rule still under way when so few of them have arrived."""
ATTEMPTS = 100
"""How often a test tries again while a driver reconnects; each attempt lasts at most `AMPLE`."""


class PublisherHarness(ABC):
    """A broker as a test needs it. Made routable by whoever makes it."""

    modes: Sequence[Mode] = (Mode.STRUCTURED, Mode.BINARY)

    @abstractmethod
    def publisher(self, mode: Mode = Mode.STRUCTURED) -> Publisher:
        """A publisher that is not open yet."""

    @abstractmethod
    async def receive(self, count: int) -> list[Message]:
        """The next so many messages that the broker delivers, in its order."""


class RoutingHarness(PublisherHarness):
    """And its routes."""

    @abstractmethod
    async def unbind(self) -> None:
        """From now on there is nowhere to put an event."""

    @abstractmethod
    async def bind(self) -> None:
        """From now on there is again."""


class StallingHarness(PublisherHarness):
    """And its appetite."""

    @abstractmethod
    async def stall(self) -> None:
        """From now on nothing is taken, apart from what fits into buffers on the way."""

    @abstractmethod
    async def resume(self) -> None:
        """From now on events are taken again."""

    batch_that_stalls: int = 1
    """How many events are certainly too many for those buffers."""


class ConnectionHarness(PublisherHarness):
    """And the way to it."""

    @abstractmethod
    async def cut(self) -> None:
        """Ends every connection and accepts none."""

    @abstractmethod
    async def heal(self) -> None:
        """Accepts connections again."""

    @abstractmethod
    async def receive_waiting(self) -> list[Message]:
        """Everything that the broker has at this moment."""


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
    """Reads a message as any consumer would, with the CloudEvents SDK."""
    properties = {f"cloudEvents:{name}": value for name, value in message.attributes.items()}
    return from_amqp(AMQPMessage({"content-type": message.content_type}, properties, message.body), JSONFormat())


def ids(messages: Sequence[Message]) -> list[str]:
    return [parse(message).get_id() for message in messages]


@asynccontextmanager
async def opened(publisher: Publisher) -> AsyncIterator[Publisher]:
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


async def publish_until_confirmed(publisher: Publisher, event: Event) -> Receipt:
    """Publishes one event again and again, as a pulse does, until the broker has it."""
    for _ in range(ATTEMPTS):
        receipt = await publisher.publish([event], deadline=AMPLE)
        if receipt.outcomes == [Outcome.CONFIRMED]:
            return receipt
        await asyncio.sleep(0.05)
    raise AssertionError(f"not confirmed after {ATTEMPTS} attempts: {receipt.error}")


class PublisherContract:
    """For every driver."""

    async def test_every_event_is_confirmed_and_delivered_once(self, harness: PublisherHarness) -> None:
        events = make_events(3)

        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(events, deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 3
        assert receipt.error == ""
        assert sorted(ids(await harness.receive(3))) == ["event-0", "event-1", "event-2"]

    async def test_each_answered_event_has_its_time(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=AMPLE)

        assert len(receipt.seconds) == 3
        assert all(seconds >= 0 for seconds in receipt.seconds)

    async def test_an_empty_batch_is_answered_with_nothing(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish([], deadline=AMPLE)

        assert receipt == Receipt([], [])

    async def test_a_large_batch_arrives_whole(self, harness: PublisherHarness) -> None:
        events = make_events(2_000)

        async with opened(harness.publisher()) as publisher:
            # Read while publishing: a pipe takes no more than its reader does.
            reading = asyncio.create_task(harness.receive(len(events)))
            receipt = await publisher.publish(events, deadline=AMPLE)
            received = await reading

        assert list(receipt.outcomes) == [Outcome.CONFIRMED] * 2_000
        assert sorted(ids(received)) == sorted(event.id for event in events)

    async def test_a_large_event_arrives_whole(self, harness: PublisherHarness) -> None:
        event = make_event(1, padding=1_000_000)

        async with opened(harness.publisher()) as publisher:
            reading = asyncio.create_task(harness.receive(1))
            receipt = await publisher.publish([event], deadline=AMPLE)
            received = await reading

        assert list(receipt.outcomes) == [Outcome.CONFIRMED]
        assert parse(received[0]).get_data() == msgspec.json.decode(event.data)

    async def test_batches_follow_one_another(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            first = await publisher.publish([make_event(1)], deadline=AMPLE)
            second = await publisher.publish([make_event(2)], deadline=AMPLE)

        assert [*first.outcomes, *second.outcomes] == [Outcome.CONFIRMED] * 2
        assert ids(await harness.receive(2)) == ["event-1", "event-2"]

    async def test_every_mode_is_a_valid_cloud_event(self, harness: PublisherHarness) -> None:
        for mode in harness.modes:
            event = make_event(7)

            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([event], deadline=AMPLE)
            [message] = await harness.receive(1)

            read = parse(message)
            assert read.get_specversion() == "1.0"
            assert read.get_id() == "event-7"
            assert read.get_source() == "hyperfleet-sentinel"
            assert read.get_type() == "com.redhat.hyperfleet.cluster.reconcile"
            assert read.get_subject() == "cls-7"
            assert read.get_time() == datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
            assert read.get_datacontenttype() == "application/json"
            assert read.get_data() == msgspec.json.decode(event.data)

    async def test_the_content_type_tells_the_mode(self, harness: PublisherHarness) -> None:
        expected = {Mode.STRUCTURED: STRUCTURED_CONTENT_TYPE, Mode.BINARY: DATA_CONTENT_TYPE}
        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1)], deadline=AMPLE)
            [message] = await harness.receive(1)

            assert message.content_type == expected[mode]

    async def test_the_attributes_stand_beside_the_body_in_every_mode(self, harness: PublisherHarness) -> None:
        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1)], deadline=AMPLE)
            [message] = await harness.receive(1)

            assert message.attributes == {
                "specversion": "1.0",
                "id": "event-1",
                "source": "hyperfleet-sentinel",
                "type": "com.redhat.hyperfleet.cluster.reconcile",
                "subject": "cls-1",
                "time": "2026-03-01T12:00:00.250000Z",
                "datacontenttype": "application/json",
            }

    async def test_a_trace_travels_with_its_event_alone(self, harness: PublisherHarness) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        for mode in harness.modes:
            async with opened(harness.publisher(mode)) as publisher:
                await publisher.publish([make_event(1, traceparent=trace), make_event(2)], deadline=AMPLE)
            received = {parse(message).get_id(): parse(message) for message in await harness.receive(2)}

            assert received["event-1"].get_extension("traceparent") == trace
            assert received["event-2"].get_extension("traceparent") is None

    async def test_in_good_order_there_is_no_trouble(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))

            assert publisher.trouble() is None

    async def test_a_publisher_that_is_not_open_says_so_and_confirms_nothing(
        self, harness: PublisherHarness
    ) -> None:
        publisher = harness.publisher()

        receipt = await publisher.publish(make_events(2), deadline=SHORT)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 2
        assert receipt.error
        assert publisher.trouble()

    async def test_a_closed_publisher_says_so_and_confirms_nothing(self, harness: PublisherHarness) -> None:
        publisher = harness.publisher()
        await publisher.open()
        await publisher.close()

        receipt = await publisher.publish(make_events(2), deadline=SHORT)

        assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 2
        assert receipt.error
        assert publisher.trouble()

    async def test_closing_twice_is_harmless(self, harness: PublisherHarness) -> None:
        publisher = harness.publisher()
        await publisher.open()

        await publisher.close()
        await publisher.close()

    async def test_closing_what_was_never_opened_is_harmless(self, harness: PublisherHarness) -> None:
        await harness.publisher().close()

    async def test_a_deadline_that_has_passed_is_answered_all_the_same(self, harness: PublisherHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=timedelta(0))

        assert len(receipt.outcomes) == 3
        assert set(receipt.outcomes) <= {Outcome.CONFIRMED, Outcome.REFUSED, Outcome.UNCONFIRMED}

    async def test_the_broker_type_is_one_that_metrics_know(self, harness: PublisherHarness) -> None:
        assert harness.publisher().broker_type in {"rabbitmq", "gcp-pubsub", "stdout", "memory"}


class RoutingContract:
    """For brokers that can have nowhere to put an event."""

    async def test_an_event_without_a_route_is_unroutable(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(make_events(3), deadline=AMPLE)

        assert list(receipt.outcomes) == [Outcome.UNROUTABLE] * 3
        assert receipt.error

    async def test_once_there_is_a_route_events_arrive(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        async with opened(harness.publisher()) as publisher:
            lost = await publisher.publish([make_event(1)], deadline=AMPLE)
            await harness.bind()
            routed = await publisher.publish([make_event(2)], deadline=AMPLE)

        assert list(lost.outcomes) == [Outcome.UNROUTABLE]
        assert list(routed.outcomes) == [Outcome.CONFIRMED]
        assert ids(await harness.receive(1)) == ["event-2"]

    async def test_a_broker_without_routes_is_not_in_trouble(self, harness: RoutingHarness) -> None:
        await harness.unbind()

        async with opened(harness.publisher()) as publisher:
            await publisher.publish([make_event(1)], deadline=AMPLE)

            assert publisher.trouble() is None


class StallingContract:
    """For brokers that can stop taking events."""

    async def test_a_broker_that_takes_nothing_is_given_up_at_the_deadline(self, harness: StallingHarness) -> None:
        events = make_events(harness.batch_that_stalls)

        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            receipt = await asyncio.wait_for(publisher.publish(events, deadline=SHORT), AMPLE.total_seconds())
            await harness.resume()

        assert len(receipt.outcomes) == len(events)
        assert receipt.outcomes[-1] in (Outcome.REFUSED, Outcome.UNCONFIRMED)
        assert receipt.error

    async def test_it_goes_on_when_the_broker_does(self, harness: StallingHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            await publisher.publish(make_events(harness.batch_that_stalls), deadline=SHORT)
            await harness.resume()
            receipt = await publish_until_confirmed(publisher, make_event(1))

            assert receipt.error == ""
            assert publisher.trouble() is None

    async def test_cancellation_is_passed_on_and_leaves_it_usable(self, harness: StallingHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.stall()
            publishing = asyncio.create_task(
                publisher.publish(make_events(harness.batch_that_stalls), deadline=AMPLE)
            )
            await asyncio.wait([publishing], timeout=SHORT.total_seconds())
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            await harness.resume()
            receipt = await publish_until_confirmed(publisher, make_event(1))

        assert list(receipt.outcomes) == [Outcome.CONFIRMED]


class ConnectionContract:
    """For brokers at the other end of a connection."""

    async def test_a_broker_out_of_reach_is_no_error_when_opening(self, harness: ConnectionHarness) -> None:
        await harness.cut()

        async with opened(harness.publisher()) as publisher:
            receipt = await publisher.publish(make_events(2), deadline=SHORT)

            assert list(receipt.outcomes) == [Outcome.UNCONFIRMED] * 2
            assert receipt.error
            assert publisher.trouble()

    async def test_a_broker_that_comes_back_is_found_again(self, harness: ConnectionHarness) -> None:
        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(1))
            await harness.cut()
            lost = await publisher.publish([make_event(2)], deadline=SHORT)
            await harness.heal()
            await publish_until_confirmed(publisher, make_event(3))

            assert list(lost.outcomes) == [Outcome.UNCONFIRMED]
            assert publisher.trouble() is None
        assert {"event-1", "event-3"} <= set(ids(await harness.receive_waiting()))

    async def test_a_broker_that_appears_late_is_found(self, harness: ConnectionHarness) -> None:
        await harness.cut()

        async with opened(harness.publisher()) as publisher:
            await harness.heal()
            await publish_until_confirmed(publisher, make_event(1))

        assert ids(await harness.receive(1)) == ["event-1"]

    async def test_nothing_confirmed_is_lost_when_the_connection_is(self, harness: ConnectionHarness) -> None:
        events = make_events(MANY)

        async with opened(harness.publisher()) as publisher:
            await publish_until_confirmed(publisher, make_event(MANY))
            receiving = asyncio.create_task(harness.receive(FEW))
            publishing = asyncio.create_task(publisher.publish(events, deadline=AMPLE))
            received = ids(await receiving)
            await harness.cut()
            receipt = await publishing
            await harness.heal()
        received += ids(await harness.receive_waiting())

        answers = zip(events, receipt.outcomes, strict=True)
        confirmed = {event.id for event, outcome in answers if outcome is Outcome.CONFIRMED}
        assert confirmed <= set(received)

"""The encoding of events as Pub/Sub messages and their grouping into requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count

import msgspec
import pytest
from google.pubsub_v1.types import PublishRequest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.events import Event, Mode
from sentinel.drivers.pubsub.publish_requests import (
    MAX_BYTES,
    MAX_TEXT_BYTES,
    EncodedRequest,
    PublishBatch,
    RequestEncoder,
    RequestLimits,
)
from sentinel.ports.publisher import PublishOutcome
from tests.support.brokers.rabbitmq import make_events

TOPIC = "projects/p/topics/t"
NO_LIMITS = RequestLimits(count=1_000, size=MAX_BYTES, time=timedelta(hours=1))


def encode(
    events: Sequence[Event],
    limits: RequestLimits = NO_LIMITS,
    *,
    ordering_key: str = "",
    ticks: Iterator[float] | None = None,
) -> tuple[PublishBatch, list[EncodedRequest]]:
    clock = ticks or iter(lambda: 0.0, None)
    encoder = RequestEncoder(
        topic=TOPIC, mode=Mode.STRUCTURED, ordering_key=ordering_key, limits=limits, now=lambda: next(clock)
    )
    batch = PublishBatch(events)
    return batch, list(encoder.encode(batch))


def sizes(requests: Sequence[EncodedRequest]) -> list[int]:
    return [len(request) for request in requests]


def with_subject(event: Event, subject: str) -> Event:
    return msgspec.structs.replace(event, subject=subject)


def test_a_request_has_at_most_the_count() -> None:
    _, requests = encode(make_events(7), RequestLimits(count=3))

    assert sizes(requests) == [3, 3, 1]


def test_a_request_has_at_most_the_size() -> None:
    _, requests = encode(make_events(5, padding=1_000), RequestLimits(size=3_500))

    assert sizes(requests) == [2, 2, 1]
    assert all(request.content.ByteSize() <= 3_500 for request in requests)


def test_an_event_larger_than_the_size_is_sent_alone() -> None:
    small, large = make_events(1), make_events(1, first=1, padding=10_000)

    _, requests = encode([*small, *large, *make_events(1, first=2)], RequestLimits(size=3_000))

    assert sizes(requests) == [1, 1, 1]


def test_a_request_ends_when_encoding_takes_too_long() -> None:
    every_millisecond = (number / 1_000 for number in count())

    _, requests = encode(make_events(9), RequestLimits(time=timedelta(milliseconds=3)), ticks=every_millisecond)

    assert sizes(requests) == [4, 4, 1]


def test_no_events_make_no_request() -> None:
    _, requests = encode([])

    assert requests == []


def test_an_event_larger_than_a_request_is_skipped() -> None:
    events = [*make_events(1), *make_events(1, first=1, padding=MAX_BYTES), *make_events(1, first=2)]

    batch, requests = encode(events)

    assert [request.positions for request in requests] == [[0, 2]]
    assert batch.outcomes == [PublishOutcome.UNCONFIRMED, PublishOutcome.UNSENDABLE, PublishOutcome.UNCONFIRMED]
    assert "the limit of a request is" in batch.reasons[1]


@pytest.mark.parametrize("subject", ["x" * (MAX_TEXT_BYTES + 1), "ü" * (MAX_TEXT_BYTES // 2 + 1), "\ud800"])
def test_an_event_with_an_invalid_attribute_is_skipped(subject: str) -> None:
    events = make_events(3)
    events[1] = with_subject(events[1], subject)

    batch, requests = encode(events)

    assert [request.positions for request in requests] == [[0, 2]]
    assert batch.outcomes[1] is PublishOutcome.UNSENDABLE
    assert batch.reasons[1].startswith("cannot be sent: ")


def test_an_attribute_of_the_maximum_length_is_sent() -> None:
    [event] = make_events(1)

    _, [request] = encode([with_subject(event, "x" * MAX_TEXT_BYTES)])

    assert request.content.messages[0].attributes["ce-subject"] == "x" * MAX_TEXT_BYTES


def test_attributes_that_differ_are_encoded_per_event() -> None:
    first, second, third = make_events(3)
    second = msgspec.structs.replace(second, time="2026-03-01T13:00:00Z", traceparent="00-a-b-01")

    _, [request] = encode([first, second, third])

    attributes = [dict(message.attributes) for message in request.content.messages]
    assert [named["ce-time"] for named in attributes] == [first.time, second.time, third.time]
    assert [named.get("ce-traceparent") for named in attributes] == [None, "00-a-b-01", None]
    assert [named["ce-id"] for named in attributes] == [first.id, second.id, third.id]


def test_an_ordering_key_is_on_every_message() -> None:
    _, [request] = encode(make_events(2), ordering_key="fleet")

    assert [message.ordering_key for message in request.content.messages] == ["fleet", "fleet"]


def test_an_ordering_key_that_is_too_long_is_rejected() -> None:
    with pytest.raises(ValueError, match="ordering_key: expected at most 1024 bytes, got 1025"):
        encode([], ordering_key="x" * 1025)


@pytest.mark.parametrize(
    ("count", "size", "time"), [(0, 1, 1), (1_001, 1, 1), (1, 0, 1), (1, MAX_BYTES + 1, 1), (1, 1, 0)]
)
def test_limits_beyond_those_of_pubsub_are_rejected(count: int, size: int, time: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        RequestLimits(count=count, size=size, time=timedelta(seconds=time))


def test_a_split_keeps_every_event_in_order() -> None:
    _, [request] = encode(make_events(5))

    first, second = request.split()

    assert [*first.positions, *second.positions] == [0, 1, 2, 3, 4]
    ids = [message.attributes["ce-id"] for half in (first, second) for message in half.content.messages]
    assert ids == ["event-0", "event-1", "event-2", "event-3", "event-4"]
    assert first.content.topic == second.content.topic == TOPIC


def test_a_single_event_cannot_be_split() -> None:
    _, [request] = encode(make_events(1))

    assert request.split() == ()


def test_a_batch_returns_its_first_error() -> None:
    batch, [first, second] = encode(make_events(4), RequestLimits(count=2))

    first.set_outcome(PublishOutcome.CONFIRMED, 0.1)
    second.set_error("gone")

    assert batch.first_error("default") == "gone"
    assert batch.seconds == [0.1, 0.1]


def test_a_confirmed_batch_has_no_error() -> None:
    batch, [request] = encode(make_events(2))

    request.set_error("at first")
    request.set_outcome(PublishOutcome.CONFIRMED, 0.1)

    assert batch.first_error("default") == ""


@given(
    paddings=st.lists(st.integers(0, 3_000), max_size=30),
    max_count=st.integers(1, 10),
    size=st.integers(1_000, 20_000),
    key=st.sampled_from(["", "key"]),
)
def test_every_event_is_sent_once_within_the_limits(
    paddings: list[int], max_count: int, size: int, key: str
) -> None:
    events = [make_events(1, first=number, padding=padding)[0] for number, padding in enumerate(paddings)]

    _, requests = encode(events, RequestLimits(count=max_count, size=size), ordering_key=key)

    assert [position for request in requests for position in request.positions] == list(range(len(events)))
    for request in requests:
        encoded = PublishRequest.serialize(PublishRequest.wrap(request.content))
        assert len(request) <= max_count
        assert len(encoded) <= size or len(request) == 1

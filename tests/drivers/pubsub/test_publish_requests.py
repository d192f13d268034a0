"""How events become Pub/Sub messages, and which of them share a request."""

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
    LONGEST_TEXT,
    MOST_BYTES,
    EncodedRequest,
    PublishBatch,
    RequestEncoder,
    RequestLimits,
)
from sentinel.ports.publisher import Outcome
from tests.support.brokers.rabbitmq import make_events

TOPIC = "projects/p/topics/t"
WIDE = RequestLimits(count=1_000, size=MOST_BYTES, time=timedelta(hours=1))


def lay_out(
    events: Sequence[Event],
    limits: RequestLimits = WIDE,
    *,
    ordering_key: str = "",
    ticks: Iterator[float] | None = None,
) -> tuple[PublishBatch, list[EncodedRequest]]:
    clock = ticks or iter(lambda: 0.0, None)
    layout = RequestEncoder(
        topic=TOPIC, mode=Mode.STRUCTURED, ordering_key=ordering_key, limits=limits, now=lambda: next(clock)
    )
    batch = PublishBatch(events)
    return batch, list(layout.requests(batch))


def sizes(requests: Sequence[EncodedRequest]) -> list[int]:
    return [len(request) for request in requests]


def with_subject(event: Event, subject: str) -> Event:
    return msgspec.structs.replace(event, subject=subject)


def test_a_request_is_closed_at_the_count() -> None:
    _, requests = lay_out(make_events(7), RequestLimits(count=3))

    assert sizes(requests) == [3, 3, 1]


def test_a_request_is_closed_before_it_exceeds_the_size() -> None:
    _, requests = lay_out(make_events(5, padding=1_000), RequestLimits(size=3_500))

    assert sizes(requests) == [2, 2, 1]
    assert all(request.content.ByteSize() <= 3_500 for request in requests)


def test_an_event_larger_than_a_request_should_be_goes_alone() -> None:
    small, large = make_events(1), make_events(1, first=1, padding=10_000)

    _, requests = lay_out([*small, *large, *make_events(1, first=2)], RequestLimits(size=3_000))

    assert sizes(requests) == [1, 1, 1]


def test_a_request_is_closed_when_it_takes_too_long_to_put_together() -> None:
    every_millisecond = (number / 1_000 for number in count())

    _, requests = lay_out(make_events(9), RequestLimits(time=timedelta(milliseconds=3)), ticks=every_millisecond)

    assert sizes(requests) == [4, 4, 1]


def test_no_events_make_no_request() -> None:
    _, requests = lay_out([])

    assert requests == []


def test_an_event_that_no_request_can_hold_is_passed_over() -> None:
    events = [*make_events(1), *make_events(1, first=1, padding=MOST_BYTES), *make_events(1, first=2)]

    batch, requests = lay_out(events)

    assert [request.positions for request in requests] == [[0, 2]]
    assert batch.outcomes == [Outcome.UNCONFIRMED, Outcome.UNSENDABLE, Outcome.UNCONFIRMED]
    assert "a request may have" in batch.reasons[1]


@pytest.mark.parametrize("subject", ["x" * (LONGEST_TEXT + 1), "ü" * (LONGEST_TEXT // 2 + 1), "\ud800"])
def test_an_event_that_no_attribute_can_hold_is_passed_over(subject: str) -> None:
    events = make_events(3)
    events[1] = with_subject(events[1], subject)

    batch, requests = lay_out(events)

    assert [request.positions for request in requests] == [[0, 2]]
    assert batch.outcomes[1] is Outcome.UNSENDABLE
    assert batch.reasons[1].startswith("cannot be sent: ")


def test_the_longest_attribute_is_taken() -> None:
    [event] = make_events(1)

    _, [request] = lay_out([with_subject(event, "x" * LONGEST_TEXT)])

    assert request.content.messages[0].attributes["ce-subject"] == "x" * LONGEST_TEXT


def test_what_events_do_not_share_is_their_own() -> None:
    first, second, third = make_events(3)
    second = msgspec.structs.replace(second, time="2026-03-01T13:00:00Z", traceparent="00-a-b-01")

    _, [request] = lay_out([first, second, third])

    attributes = [dict(message.attributes) for message in request.content.messages]
    assert [named["ce-time"] for named in attributes] == [first.time, second.time, third.time]
    assert [named.get("ce-traceparent") for named in attributes] == [None, "00-a-b-01", None]
    assert [named["ce-id"] for named in attributes] == [first.id, second.id, third.id]


def test_an_ordering_key_is_on_every_message() -> None:
    _, [request] = lay_out(make_events(2), ordering_key="fleet")

    assert [message.ordering_key for message in request.content.messages] == ["fleet", "fleet"]


def test_an_ordering_key_that_pubsub_would_refuse_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="ordering_key: expected at most 1024 bytes, got 1025"):
        lay_out([], ordering_key="x" * 1025)


@pytest.mark.parametrize(
    ("count", "size", "time"), [(0, 1, 1), (1_001, 1, 1), (1, 0, 1), (1, MOST_BYTES + 1, 1), (1, 1, 0)]
)
def test_limits_beyond_what_pubsub_takes_are_refused(count: int, size: int, time: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        RequestLimits(count=count, size=size, time=timedelta(seconds=time))


def test_halves_keep_every_event_in_order() -> None:
    _, [request] = lay_out(make_events(5))

    first, second = request.halves()

    assert [*first.positions, *second.positions] == [0, 1, 2, 3, 4]
    ids = [message.attributes["ce-id"] for half in (first, second) for message in half.content.messages]
    assert ids == ["event-0", "event-1", "event-2", "event-3", "event-4"]
    assert first.content.topic == second.content.topic == TOPIC


def test_one_event_has_no_halves() -> None:
    _, [request] = lay_out(make_events(1))

    assert request.halves() == ()


def test_a_batch_explains_its_first_failure() -> None:
    batch, [first, second] = lay_out(make_events(4), RequestLimits(count=2))

    first.answered(Outcome.CONFIRMED, 0.1)
    second.went_wrong("gone")

    assert batch.explain("otherwise") == "gone"
    assert batch.seconds == [0.1, 0.1]


def test_a_batch_that_is_confirmed_has_nothing_to_explain() -> None:
    batch, [request] = lay_out(make_events(2))

    request.went_wrong("at first")
    request.answered(Outcome.CONFIRMED, 0.1)

    assert batch.explain("otherwise") == ""


@given(
    paddings=st.lists(st.integers(0, 3_000), max_size=30),
    most=st.integers(1, 10),
    size=st.integers(1_000, 20_000),
    key=st.sampled_from(["", "key"]),
)
def test_every_event_is_sent_once_within_the_limits(paddings: list[int], most: int, size: int, key: str) -> None:
    events = [make_events(1, first=number, padding=padding)[0] for number, padding in enumerate(paddings)]

    _, requests = lay_out(events, RequestLimits(count=most, size=size), ordering_key=key)

    assert [position for request in requests for position in request.positions] == list(range(len(events)))
    for request in requests:
        encoded = PublishRequest.serialize(PublishRequest.wrap(request.content))
        assert len(request) <= most
        assert len(encoded) <= size or len(request) == 1

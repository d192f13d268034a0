"""Encoded frames, read with the library's decoder, contain the event."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from sentinel.core import events
from sentinel.core.events import Event, Mode
from sentinel.core.times import timestamp
from sentinel.drivers.rabbitmq.frames import FrameEncoder, Unsendable

FRAME_MAX = 4096

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# The library's decoder reads later ones as milliseconds.
times = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(timestamp)


def make_encoder(mode: Mode = Mode.STRUCTURED, *, frame_max: int = FRAME_MAX) -> FrameEncoder:
    return FrameEncoder(channel=7, exchange="events", routing_key="due", mode=mode, frame_max=frame_max)


def event(**attributes: str) -> Event:
    plain = Event(
        id="event-1", type="made.up", subject="cls-1", time="2026-03-01T12:00:00Z", data=msgspec.Raw(b"1")
    )
    return msgspec.structs.replace(plain, **attributes)


def event_of(size: int) -> Event:
    return msgspec.structs.replace(event(), data=msgspec.Raw(b"1" * size))


def decode(encoded: bytes) -> tuple[Basic.Publish, ContentHeader, list[bytes]]:
    """Return the method, the header and the bodies; check the channel of each."""
    frames: list[pamqp.frame.FrameTypes] = []
    while encoded:
        consumed, channel, frame = pamqp.frame.unmarshal(encoded)
        assert channel == 7
        assert consumed <= FRAME_MAX
        frames.append(frame)
        encoded = encoded[consumed:]
    publish, header, *bodies = frames
    assert isinstance(publish, Basic.Publish)
    assert isinstance(header, ContentHeader)
    return publish, header, [body.value for body in bodies if isinstance(body, ContentBody)]


@given(
    made=st.lists(
        st.builds(
            Event,
            id=texts,
            type=texts,
            subject=texts,
            time=times,
            data=st.integers(0, 3 * FRAME_MAX).map(lambda size: msgspec.Raw(b"7" * size)),
            traceparent=texts,
        ),
        max_size=3,
    ),
    mode=st.sampled_from(Mode),
)
def test_an_event_is_encoded_independently_of_previous_events(made: list[Event], mode: Mode) -> None:
    encoder = make_encoder(mode)

    for each in made:
        publish, header, bodies = decode(encoder.encode(each))

        body = events.body(each, mode)
        properties = header.properties
        assert (publish.exchange, publish.routing_key, publish.mandatory) == ("events", "due", True)
        assert header.body_size == len(body)
        assert b"".join(bodies) == body
        assert properties.content_type == events.content_type(mode)
        assert properties.headers == {
            f"cloudEvents:{name}": value for name, value in events.attributes(each).items()
        }
        assert properties.delivery_mode == 2
        assert (properties.message_id or "") == each.id
        assert (properties.message_type or "") == each.type
        assert properties.timestamp == datetime.fromisoformat(each.time).replace(microsecond=0)


def test_a_body_is_split_only_if_it_exceeds_a_frame() -> None:
    room = FRAME_MAX - 8

    sizes = [
        [len(part) for part in decode(make_encoder(Mode.BINARY).encode(event_of(size)))[2]]
        for size in (1, room, room + 1)
    ]

    assert sizes == [[1], [room], [room, 1]]


def test_without_a_limit_a_body_is_one_frame() -> None:
    encoded = make_encoder(Mode.BINARY, frame_max=0).encode(event_of(FRAME_MAX * 2))

    assert pamqp.frame.unmarshal(encoded[-(FRAME_MAX * 2 + 8) :])[0] == FRAME_MAX * 2 + 8


@pytest.mark.parametrize(
    ("unsendable", "reason"),
    [
        (event(id="é" * 128), "its id takes 256 bytes, and the limit is 255"),
        (event(type="t" * 256), "its type takes 256 bytes, and the limit is 255"),
        (event(time="yesterday"), "its time cannot be sent: 'yesterday'"),
        (event(time="1969-12-31T23:59:59Z"), "its time cannot be sent: '1969-12-31T23:59:59Z'"),
    ],
)
def test_an_event_that_the_protocol_cannot_carry_is_unsendable(unsendable: Event, reason: str) -> None:
    with pytest.raises(Unsendable, match=reason):
        make_encoder().encode(unsendable)


def test_attributes_must_fit_into_one_frame() -> None:
    with pytest.raises(Unsendable, match=r"its attributes take \d+ bytes, and the limit is 4088"):
        make_encoder().encode(event(subject="s" * FRAME_MAX))


def test_an_unsendable_event_does_not_affect_the_next() -> None:
    encoder = make_encoder()
    with pytest.raises(Unsendable):
        encoder.encode(event(type="t" * 256, time="2027-01-01T00:00:00Z"))

    _, header, _ = decode(encoder.encode(event()))

    assert header.properties.timestamp == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert header.properties.message_type == "made.up"

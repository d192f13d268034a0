"""Properties that cannot be decoded are removed, so that they do not end the connection."""

from __future__ import annotations

import asyncio
import struct
from functools import reduce

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from sentinel.drivers.rabbitmq.frame_reader import FrameReader, repair_header


def header(flags: int, properties: bytes, *, size: int = 7) -> bytes:
    return struct.pack(">HHQH", Basic.frame_id, 0, size, flags) + properties


def table(entries: bytes) -> bytes:
    return struct.pack(">I", len(entries)) + entries


NANOSECONDS = struct.pack(">Q", 1_790_000_000_000_000_000)
UNDECODABLE_ENTRIES = {
    "a time in nanoseconds": b"\x01tT" + NANOSECONDS,
    "a name that is not UTF-8": b"\x02\xff\xfeS\0\0\0\x01x",
    "a nested table with such a time": b"\x01fF\0\0\0\x0b\x01tT" + NANOSECONDS,
    "thousands of nested tables": b"\x01f"
    + reduce(lambda inner, _: b"F" + table(b"\0" + inner), range(5_000), b"V"),
}
GOOD = b"\x02idS\0\0\0\x03a-1"


def decoded(payload: bytes) -> ContentHeader:
    content = ContentHeader()
    content.unmarshal(payload)
    return content


def test_a_decodable_header_is_unchanged() -> None:
    payload = ContentHeader(
        body_size=3, properties=Basic.Properties(content_type="text/plain", headers={"a": 1, "b": ["c"]})
    ).marshal()

    assert repair_header(payload) is payload


@pytest.mark.parametrize("entry", UNDECODABLE_ENTRIES.values(), ids=UNDECODABLE_ENTRIES.keys())
def test_an_undecodable_header_is_removed_and_the_others_stay(entry: bytes) -> None:
    flags = Basic.Properties.flags["headers"] | Basic.Properties.flags["message_id"]

    content = decoded(repair_header(header(flags, table(GOOD + entry + GOOD[:1] + b"me" + GOOD[3:]) + b"\x03m-1")))

    assert content.properties.headers == {"id": "a-1", "me": "a-1"}
    assert content.properties.message_id == "m-1"
    assert content.body_size == 7


@pytest.mark.parametrize(
    ("name", "encoded"), [("timestamp", NANOSECONDS), ("correlation_id", b"\x02\xff\xfe"), ("app_id", b"\x01\xff")]
)
def test_an_undecodable_property_is_removed_and_the_others_stay(name: str, encoded: bytes) -> None:
    flags = Basic.Properties.flags["content_type"] | Basic.Properties.flags[name]

    content = decoded(repair_header(header(flags, b"\x04text" + encoded)))

    assert content.properties.content_type == "text"
    assert getattr(content.properties, name) is None


@given(st.integers(0, 0xFFFF), st.binary(max_size=60))
def test_the_body_size_can_be_decoded_for_any_properties(flags: int, properties: bytes) -> None:
    assert decoded(repair_header(header(flags, properties))).body_size == 7


async def test_a_stream_is_read_in_pieces_of_any_size() -> None:
    bad = header(Basic.Properties.flags["timestamp"], NANOSECONDS)
    frames = [
        pamqp.frame.marshal(Basic.Deliver("tag", 1, False, "exchange", "key"), 1),
        struct.pack(">BHI", 2, 1, len(bad)) + bad + b"\xce",
        b"\x08\0\0\0\0\0\0\xce",
    ]
    reader = FrameReader()
    reader.feed_data(b"".join(frames))
    reader.feed_eof()

    first = await reader.readexactly(len(frames[0]))
    second = [await reader.readexactly(1), await reader.readexactly(6)]
    [size] = struct.unpack(">I", second[-1][2:])
    second.append(await reader.readexactly(size + 1))
    assert not reader.at_eof()
    third = await reader.readexactly(8)

    assert (first, third) == (frames[0], frames[2])
    _, channel, content = pamqp.frame.unmarshal(b"".join(second))
    assert channel == 1
    assert isinstance(content, ContentHeader)
    assert content.body_size == 7
    assert reader.at_eof()


async def test_a_rejected_protocol_version_is_passed_through() -> None:
    reader = FrameReader()
    reader.feed_data(b"AMQP\0\x01\0\0")

    assert await reader.readexactly(7) == b"AMQP\0\x01\0"


async def test_a_stream_that_ends_within_a_frame_raises() -> None:
    reader = FrameReader()
    reader.feed_data(b"\x08\0\0")
    reader.feed_eof()

    with pytest.raises(asyncio.IncompleteReadError):
        await reader.readexactly(1)

"""Which event a received message is, in every form that publishers use."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from sentinel.drivers import event_messages
from sentinel.ports.subscription import Message

STRUCTURED = "application/cloudevents+json"
EVENT = {"specversion": "1.0", "id": "a-1", "source": "elsewhere", "type": "t", "data": {"id": "not this"}}


def read(body: bytes, content_type: str = "", **headers: str) -> Message:
    named = {name.replace("__", ":"): value for name, value in headers.items()}
    return event_messages.read_message(
        body=body, content_type=content_type, headers=named, prefixes=("cloudEvents:", "cloudEvents_")
    )


def test_attributes_from_headers_lose_their_prefix() -> None:
    message = read(b"{}", "application/json", cloudEvents__id="a-1", cloudEvents__subject="cls-1", other="x")

    assert message.attributes == {"id": "a-1", "subject": "cls-1", "datacontenttype": "application/json"}


def test_both_amqp_prefixes_are_read() -> None:
    assert read(b"", cloudEvents_id="a-1").attributes == {"id": "a-1"}


def test_a_structured_event_without_headers_is_read_from_its_body() -> None:
    message = read(msgspec.json.encode(EVENT))

    assert message.attributes == {"specversion": "1.0", "id": "a-1", "source": "elsewhere", "type": "t"}


def test_attributes_that_are_not_strings_are_skipped() -> None:
    assert "priority" not in read(msgspec.json.encode(EVENT | {"priority": 1})).attributes


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b'"text"',
        b'{"id": "a-1"}',
        b'{"specversion": "1.0"',
        b'{"specversion": "1.0", "id": "\xff"}',
        b'{"specversion": "1.0", "id": "\\ud800"}',
        b'{"specversion": "1.0", "id": "a", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_message_that_is_not_an_event_has_no_attributes(body: bytes) -> None:
    message = read(body, STRUCTURED)

    assert message.attributes == {}
    assert message.body == body


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-03-01T12:00:00", "1772366400"])
def test_an_invalid_time_is_none(text: str | None) -> None:
    assert event_messages.parse_time(text) is None


def test_a_time_is_converted_to_utc() -> None:
    assert event_messages.parse_time("2026-03-01T13:00:00+01:00") == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_dead_letter_without_our_headers_is_read_without_them() -> None:
    letter = event_messages.read_dead_letter(Message(b"junk", "", {}), {event_messages.ATTEMPTS_HEADER: "many"})

    assert len(letter.id) == 16
    assert (letter.type, letter.subject, letter.reason, letter.time, letter.attempts) == ("", "", "", None, 0)

"""Server-sent events: chunks may end anywhere, and memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.server_sent_events import EventDecoder, EventTooLarge, ServerSentEvent

BODY = (
    b"\xef\xbb\xbf: hello\r\n"
    b"id: 1\nevent: resource.changed\ndata: {\ndata:  1}\n\n"
    b": comment\n\n"
    b"data: plain\r\r"
    b"retry: 100\nid: 7\n\n"
    b"id: ignored\0\nevent: resource.synced\n\r\n"
    b"event: incomplete\ndata: never"
)
EVENTS = [
    ServerSentEvent("resource.changed", b"{\n 1}", "1"),
    ServerSentEvent("message", b"plain", "1"),
    ServerSentEvent("resource.synced", b"", "7"),
]


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=12).map(sorted))
def test_the_chunks_of_a_body_do_not_change_its_events(cuts: list[int]) -> None:
    decoder = EventDecoder()

    events = []
    for begin, end in zip((0, *cuts), (*cuts, len(BODY)), strict=True):
        events += decoder.feed(BODY[begin:end])

    assert events == EVENTS
    assert decoder.last_id == "7"


@given(body=st.binary(max_size=200))
def test_any_bytes_are_read(body: bytes) -> None:
    EventDecoder().feed(body)


@given(
    types=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.binary(min_size=1, max_size=20)), max_size=5),
)
def test_events_are_read_as_they_were_written(types: list[tuple[str, bytes]]) -> None:
    clean = [(kind, data.replace(b"\n", b"").replace(b"\r", b"") or b"x") for kind, data in types]
    body = b"".join(b"event: %b\ndata: %b\n\n" % (kind.encode(), data) for kind, data in clean)

    events = EventDecoder().feed(body)

    assert [(event.type, event.data) for event in events] == clean


@pytest.mark.parametrize("chunk", [b"data: x", b"data:\n", b"x" * 64, b"data: " + b"x" * 40 + b"\n"])
def test_an_event_without_an_end_is_refused(chunk: bytes) -> None:
    decoder = EventDecoder(limit=1000)

    with pytest.raises(EventTooLarge, match="expected events of at most 1000 bytes, got more"):
        _ = [decoder.feed(chunk) for _ in range(1000)]


def test_many_events_may_exceed_the_limit_together() -> None:
    decoder = EventDecoder(limit=100)

    events = [event for _ in range(100) for event in decoder.feed(b"data: 0123456789\n\n: comment\n")]

    assert len(events) == 100


def test_a_line_end_of_two_bytes_may_be_split() -> None:
    decoder = EventDecoder()

    events = [event for chunk in (b"data: x\r", b"", b"\n\r", b"\n") for event in decoder.feed(chunk)]

    assert events == [ServerSentEvent("message", b"x", "")]

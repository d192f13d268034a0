"""Streams: timeouts, limits, disconnects, and closing the iterator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.testing.loop import simulated
from sentinel.web import problem
from sentinel.web.routing import Request, Response, Stream
from sentinel.web.streams import SEND_TIMEOUT
from tests.web.asgi_client import RequestRecorder, call, make_app, returning, route
from tests.web.stream_client import Feed, StreamClient

HOUR = timedelta(hours=1)


class UnreadIterator:
    """An iterator that must not be read. Records that it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def __aiter__(self) -> UnreadIterator:
        return self

    async def __anext__(self) -> bytes:
        raise AssertionError("expected not to be read")

    async def aclose(self) -> None:
        self.is_closed = True


@simulated
async def test_a_stream_sends_headers_and_each_chunk_at_once() -> None:
    may_go_on = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        await may_go_on.wait()
        yield b"one"
        yield b""
        yield b"two"

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain", status=203, headers={"X-Feed": "1"})

    listener = StreamClient(make_app(route(handler)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.wait_for_headers()
        before = len(listener.messages)
        may_go_on.set()

    assert before == 1
    assert (listener.status, listener.headers["content-type"]) == (203, "text/plain")
    assert listener.headers["x-feed"] == "1"
    assert "content-length" not in listener.headers
    assert listener.headers["cache-control"] == "no-store"
    assert [message["body"] for message in listener.messages[1:]] == [b"one", b"two", b""]
    assert listener.is_complete


@simulated
async def test_a_stream_outlives_the_request_timeout() -> None:
    async def content() -> AsyncIterator[bytes]:
        await asyncio.sleep(HOUR.total_seconds())
        yield b"late"

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = StreamClient(make_app(route(handler), request_timeout=timedelta(seconds=1)))

    await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"late"], True)


@simulated
async def test_the_timeout_applies_until_the_stream_is_returned() -> None:
    async def handler(request: Request) -> Stream:
        await asyncio.sleep(HOUR.total_seconds())
        raise AssertionError

    response = await call(make_app(route(handler)), "GET", "/things")

    assert (response.status, response.json["code"]) == (503, "HYPERFLEET-SVC-002")


@simulated
async def test_a_stream_whose_headers_time_out_is_closed() -> None:
    content = UnreadIterator()

    async def handler(request: Request) -> Stream:
        return Stream(content=content, content_type="text/plain")

    listener = StreamClient(make_app(route(handler), request_timeout=timedelta(seconds=1)), reads=-1)

    await listener.listen()

    assert listener.messages == []
    assert content.is_closed


@simulated
async def test_a_stream_is_not_a_concurrent_request() -> None:
    feed = Feed(b"one")
    app = make_app(route(feed), route(returning(Response(body=b"{}")), path="/other"), max_concurrent_requests=1)
    listener = StreamClient(app)
    async with listener.listening(chunks=1):
        response = await call(app, "GET", "/other")
        listener.disconnect()

    assert response.status == 200


@simulated
async def test_one_stream_too_many_is_a_503_and_closed() -> None:
    feed, rejected = Feed(b"one"), UnreadIterator()

    async def second(request: Request) -> Stream:
        return Stream(content=rejected, content_type="text/plain")

    app = make_app(route(feed), route(second, path="/second"), max_streams=1)
    listener = StreamClient(app)
    async with listener.listening(chunks=1):
        response = await call(app, "GET", "/second")
        listener.disconnect()

    assert (response.status, response.json["code"]) == (503, "HYPERFLEET-SVC-003")
    assert response.headers["retry-after"] == "1"
    assert rejected.is_closed


@simulated
async def test_an_ended_stream_makes_room_for_another() -> None:
    app = make_app(route(Feed(b"one", is_endless=False)), max_streams=1)

    for _ in range(3):
        listener = StreamClient(app)
        await listener.listen()
        assert (listener.status, listener.chunks) == (200, [b"one"])


@simulated
async def test_a_disconnect_ends_the_stream() -> None:
    feed, recorder = Feed(b"one"), RequestRecorder()
    listener = StreamClient(make_app(route(feed), observers=[recorder]))
    async with listener.listening(chunks=1):
        assert (recorder.started, recorder.records) == (1, [])
        listener.disconnect()

    assert feed.has_ended.is_set()
    (record,) = recorder.records
    assert (record.route, record.status, record.size) == ("/things", 200, 3)


@simulated
async def test_a_disconnect_of_a_stalled_client_ends_the_stream() -> None:
    feed = Feed(b"one", b"two")
    listener = StreamClient(make_app(route(feed)), reads=1)
    async with listener.listening(chunks=1):
        listener.disconnect()

    assert feed.has_ended.is_set()


@simulated
async def test_a_stream_that_never_waits_does_not_block_others() -> None:
    has_ended = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            has_ended.set()

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = StreamClient(make_app(route(handler)))
    async with listener.listening(chunks=3):
        listener.disconnect()

    assert has_ended.is_set()


@simulated
async def test_a_stopping_server_completes_its_streams() -> None:
    feed = Feed(b"one")
    listener = StreamClient(make_app(route(feed)))
    async with listener.listening(chunks=1):
        listener.connection.stopping.request()

    assert feed.has_ended.is_set()
    assert (listener.chunks, listener.is_complete) == ([b"one"], True)
    assert listener.connection.calls == ["close"]


@simulated
async def test_a_stream_requested_during_a_stop_ends_at_once() -> None:
    feed = Feed(b"one")
    listener = StreamClient(make_app(route(feed)))
    listener.connection.stopping.request()

    await listener.listen()

    assert (listener.status, listener.chunks, listener.is_complete) == (200, [], True)
    assert feed.requested_chunks == 0


@simulated
async def test_a_client_that_reads_nothing_does_not_delay_a_stop() -> None:
    feed = Feed(b"one", b"two")
    listener = StreamClient(make_app(route(feed)), reads=1)
    now = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listener.listen())
        await listener.wait_for_chunks(1)
        listener.connection.stopping.request()
        start = now()
        await listening

    assert now() - start <= 1
    assert feed.has_ended.is_set()
    assert listener.connection.calls == ["abort"]


@simulated
async def test_the_next_chunk_is_requested_after_the_last_is_sent() -> None:
    feed = Feed(b"one", b"two", b"three")
    listener = StreamClient(make_app(route(feed)), reads=1)
    async with listener.listening(chunks=1):
        await asyncio.sleep(SEND_TIMEOUT.total_seconds() / 2)
        asked = feed.requested_chunks
        listener.read_rest()
        await listener.wait_for_chunks(3)
        listener.disconnect()

    assert asked == 2
    assert listener.chunks == [b"one", b"two", b"three"]


@simulated
async def test_a_stalled_client_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(b"one", b"two")
    listener = StreamClient(make_app(route(feed)), reads=1)
    now = asyncio.get_running_loop().time
    start = now()

    with caplog.at_level(logging.WARNING):
        await listener.listen()

    assert now() - start == SEND_TIMEOUT.total_seconds()
    assert feed.has_ended.is_set()
    assert listener.connection.calls == ["abort"]
    assert [record.getMessage() for record in caplog.records] == ["http.stalled"]


@pytest.mark.parametrize("make", [RuntimeError, TimeoutError])
@simulated
async def test_a_failing_iterator_truncates_the_response(
    make: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"one"
        raise make("oh")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = StreamClient(make_app(route(handler)))
    with caplog.at_level(logging.WARNING):
        await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"one"], False)
    assert listener.connection.calls == ["close"]
    (record,) = caplog.records
    assert record.getMessage() == "http.failed"
    assert record.__dict__["fields"]["path"] == "/things"
    assert record.__dict__["fields"]["request_id"]


@simulated
async def test_a_failing_clean_up_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = RequestRecorder()

    async def content() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            raise RuntimeError("no")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = StreamClient(make_app(route(handler), observers=[recorder]), reads=1)
    with caplog.at_level(logging.WARNING):
        async with listener.listening(chunks=1):
            listener.disconnect()

    assert [record.getMessage() for record in caplog.records] == ["http.stream_close_failed"]
    assert len(recorder.records) == 1


@simulated
async def test_a_cancelled_stream_is_closed() -> None:
    feed, recorder = Feed(b"one"), RequestRecorder()
    listener = StreamClient(make_app(route(feed), observers=[recorder]))
    task = asyncio.create_task(listener.listen())
    await listener.wait_for_chunks(1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert feed.has_ended.is_set()
    assert len(recorder.records) == 1


@simulated
async def test_head_sends_the_headers_of_a_stream_and_closes_it() -> None:
    content = UnreadIterator()

    async def handler(request: Request) -> Stream:
        return Stream(content=content, content_type="text/event-stream")

    listener = StreamClient(make_app(route(handler), max_streams=1), method="HEAD")

    await listener.listen()

    assert (listener.status, listener.headers["content-type"]) == (200, "text/event-stream")
    assert (listener.chunks, listener.is_complete, content.is_closed) == ([], True, True)


@simulated
async def test_a_streaming_handler_may_raise_a_problem() -> None:
    async def handler(request: Request) -> Stream:
        raise problem.not_found("no such feed")

    response = await call(make_app(route(handler)), "GET", "/things")

    assert response.status == 404


@simulated
async def test_an_iterator_without_aclose_is_accepted() -> None:
    class Plain:
        def __init__(self) -> None:
            self._chunks = [b"one", b"two"]

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> bytes:
            if not self._chunks:
                raise StopAsyncIteration
            return self._chunks.pop(0)

    async def handler(request: Request) -> Stream:
        return Stream(content=Plain(), content_type="text/plain")

    listener = StreamClient(make_app(route(handler)))

    await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"one", b"two"], True)

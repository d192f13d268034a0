"""Answers that stream: outside deadline and limit, inside bounds of their own, and never left open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.web import problem
from sentinel.web.routing import Request, Response, Stream
from sentinel.web.streams import SEND_TIMEOUT
from tests.web.calling import Recorder, answering, app_of, call, route
from tests.web.streaming import Feed, Listener, virtual_time

HOUR = timedelta(hours=1)


class Unstarted:
    """An iterator that is no generator, and notes that it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def __aiter__(self) -> Unstarted:
        return self

    async def __anext__(self) -> bytes:
        raise AssertionError("expected not to be asked")

    async def aclose(self) -> None:
        self.is_closed = True


@virtual_time
async def test_a_stream_sends_its_head_at_once_and_then_each_chunk() -> None:
    may_go_on = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        await may_go_on.wait()
        yield b"one"
        yield b""
        yield b"two"

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain", status=203, headers={"X-Feed": "1"})

    listener = Listener(app_of(route(handler)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.begun()
        before = len(listener.messages)
        may_go_on.set()

    assert before == 1
    assert (listener.status, listener.headers["content-type"]) == (203, "text/plain")
    assert listener.headers["x-feed"] == "1"
    assert "content-length" not in listener.headers
    assert listener.headers["cache-control"] == "no-store"
    assert [message["body"] for message in listener.messages[1:]] == [b"one", b"two", b""]
    assert listener.is_complete


@virtual_time
async def test_a_stream_outlives_the_deadline_of_requests() -> None:
    async def content() -> AsyncIterator[bytes]:
        await asyncio.sleep(HOUR.total_seconds())
        yield b"late"

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = Listener(app_of(route(handler), request_timeout=timedelta(seconds=1)))

    await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"late"], True)


@virtual_time
async def test_the_deadline_holds_until_the_handler_returns_its_stream() -> None:
    async def handler(request: Request) -> Stream:
        await asyncio.sleep(HOUR.total_seconds())
        raise AssertionError

    answered = await call(app_of(route(handler)), "GET", "/things")

    assert (answered.status, answered.json["code"]) == (503, "HYPERFLEET-SVC-002")


@virtual_time
async def test_a_stream_whose_head_cannot_be_sent_in_time_is_closed() -> None:
    content = Unstarted()

    async def handler(request: Request) -> Stream:
        return Stream(content=content, content_type="text/plain")

    listener = Listener(app_of(route(handler), request_timeout=timedelta(seconds=1)), takes=-1)

    await listener.listen()

    assert listener.messages == []
    assert content.is_closed


@virtual_time
async def test_a_stream_takes_no_place_among_requests_at_once() -> None:
    feed = Feed(b"one")
    app = app_of(route(feed), route(answering(Response(body=b"{}")), path="/other"), max_concurrent_requests=1)
    listener = Listener(app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)

        answered = await call(app, "GET", "/other")
        listener.go()

    assert answered.status == 200


@virtual_time
async def test_one_stream_too_many_is_a_503_and_closed_unread() -> None:
    feed, refused = Feed(b"one"), Unstarted()

    async def second(request: Request) -> Stream:
        return Stream(content=refused, content_type="text/plain")

    app = app_of(route(feed), route(second, path="/second"), max_streams=1)
    listener = Listener(app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)

        answered = await call(app, "GET", "/second")
        listener.go()

    assert (answered.status, answered.json["code"]) == (503, "HYPERFLEET-SVC-003")
    assert answered.headers["retry-after"] == "1"
    assert refused.is_closed


@virtual_time
async def test_a_stream_that_ends_makes_room_for_another() -> None:
    app = app_of(route(Feed(b"one", is_endless=False)), max_streams=1)

    for _ in range(3):
        listener = Listener(app)
        await listener.listen()
        assert (listener.status, listener.chunks) == (200, [b"one"])


@virtual_time
async def test_a_client_that_goes_ends_its_stream() -> None:
    feed, recorder = Feed(b"one"), Recorder()
    listener = Listener(app_of(route(feed), observers=[recorder]))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)
        assert (recorder.begun, recorder.exchanges) == (1, [])
        listener.go()

    assert feed.has_ended.is_set()
    (exchange,) = recorder.exchanges
    assert (exchange.route, exchange.status, exchange.size) == ("/things", 200, 3)


@virtual_time
async def test_a_client_that_goes_while_it_takes_nothing_ends_its_stream() -> None:
    feed = Feed(b"one", b"two")
    listener = Listener(app_of(route(feed)), takes=1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)
        listener.go()

    assert feed.has_ended.is_set()


@virtual_time
async def test_a_stream_that_never_waits_lets_others_run() -> None:
    has_ended = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            has_ended.set()

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = Listener(app_of(route(handler)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(3)
        listener.go()

    assert has_ended.is_set()


@virtual_time
async def test_a_server_that_stops_ends_its_streams_completely() -> None:
    feed = Feed(b"one")
    listener = Listener(app_of(route(feed)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)
        listener.connection.stopping.request()

    assert feed.has_ended.is_set()
    assert (listener.chunks, listener.is_complete) == ([b"one"], True)
    assert listener.connection.told == ["close"]


@virtual_time
async def test_a_stream_asked_for_while_the_server_stops_ends_at_once() -> None:
    feed = Feed(b"one")
    listener = Listener(app_of(route(feed)))
    listener.connection.stopping.request()

    await listener.listen()

    assert (listener.status, listener.chunks, listener.is_complete) == (200, [], True)
    assert feed.asked == 0


@virtual_time
async def test_a_client_that_takes_nothing_does_not_keep_a_server_from_stopping() -> None:
    feed = Feed(b"one", b"two")
    listener = Listener(app_of(route(feed)), takes=1)
    now = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listener.listen())
        await listener.heard(1)
        listener.connection.stopping.request()
        began = now()
        await listening

    assert now() - began <= 1
    assert feed.has_ended.is_set()
    assert listener.connection.told == ["abort"]


@virtual_time
async def test_the_next_chunk_is_asked_for_when_the_last_is_taken() -> None:
    feed = Feed(b"one", b"two", b"three")
    listener = Listener(app_of(route(feed)), takes=1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.listen())
        await listener.heard(1)
        await asyncio.sleep(SEND_TIMEOUT.total_seconds() / 2)
        asked = feed.asked
        listener.take_rest()
        await listener.heard(3)
        listener.go()

    assert asked == 2
    assert listener.chunks == [b"one", b"two", b"three"]


@virtual_time
async def test_a_client_that_takes_nothing_for_long_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(b"one", b"two")
    listener = Listener(app_of(route(feed)), takes=1)
    now = asyncio.get_running_loop().time
    began = now()

    with caplog.at_level(logging.WARNING):
        await listener.listen()

    assert now() - began == SEND_TIMEOUT.total_seconds()
    assert feed.has_ended.is_set()
    assert listener.connection.told == ["abort"]
    assert [record.getMessage() for record in caplog.records] == ["http.stalled"]


@pytest.mark.parametrize("make", [RuntimeError, TimeoutError])
@virtual_time
async def test_an_iterator_that_fails_breaks_the_answer_off_and_is_logged(
    make: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"one"
        raise make("oh")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = Listener(app_of(route(handler)))
    with caplog.at_level(logging.WARNING):
        await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"one"], False)
    assert listener.connection.told == ["close"]
    (record,) = caplog.records
    assert record.getMessage() == "http.failed"
    assert record.__dict__["fields"]["path"] == "/things"
    assert record.__dict__["fields"]["request_id"]


@virtual_time
async def test_a_clean_up_that_fails_is_logged_and_the_exchange_is_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()

    async def content() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            raise RuntimeError("no")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    listener = Listener(app_of(route(handler), observers=[recorder]), takes=1)
    with caplog.at_level(logging.WARNING):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.listen())
            await listener.heard(1)
            listener.go()

    assert [record.getMessage() for record in caplog.records] == ["http.stream_close_failed"]
    assert len(recorder.exchanges) == 1


@virtual_time
async def test_a_stream_that_is_cancelled_from_outside_is_closed() -> None:
    feed, recorder = Feed(b"one"), Recorder()
    listener = Listener(app_of(route(feed), observers=[recorder]))
    task = asyncio.create_task(listener.listen())
    await listener.heard(1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert feed.has_ended.is_set()
    assert len(recorder.exchanges) == 1


@virtual_time
async def test_head_has_the_head_of_a_stream_and_closes_it_unread() -> None:
    content = Unstarted()

    async def handler(request: Request) -> Stream:
        return Stream(content=content, content_type="text/event-stream")

    listener = Listener(app_of(route(handler), max_streams=1), method="HEAD")

    await listener.listen()

    assert (listener.status, listener.headers["content-type"]) == (200, "text/event-stream")
    assert (listener.chunks, listener.is_complete, content.is_closed) == ([], True, True)


@virtual_time
async def test_a_handler_that_streams_may_still_refuse() -> None:
    async def handler(request: Request) -> Stream:
        raise problem.not_found("no such feed")

    answered = await call(app_of(route(handler)), "GET", "/things")

    assert answered.status == 404


@virtual_time
async def test_an_iterator_that_cannot_be_closed_is_taken_as_well() -> None:
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

    listener = Listener(app_of(route(handler)))

    await listener.listen()

    assert (listener.chunks, listener.is_complete) == ([b"one", b"two"], True)

"""Streams over real sockets: flushed at once, ended with the client, and no reason for a server not to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.web.asgi import Receive, Scope, Send, connection_of
from sentinel.web.routing import Request, Response, Stream
from sentinel.web.server import Server
from tests.web.calling import LOG, answering, app_of, route
from tests.web.serving import LOOPBACK, WAIT, Running, client_of, serving
from tests.web.streaming import Feed

REQUEST = b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Flood:
    """A handler whose streams send more than any connection holds, for as long as the client takes it."""

    def __init__(self) -> None:
        self.is_full = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def __call__(self, request: Request) -> Stream:
        return Stream(content=self._content(), content_type="application/octet-stream")

    async def _content(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(16_000_000)
                self.is_full.set()
        finally:
            self.has_ended.set()


class Held:
    """A handler whose stream sends a chunk whenever it is let."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def __call__(self, request: Request) -> Stream:
        return Stream(content=self._content(), content_type="text/plain")

    async def _content(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await self.may_go_on.wait()
                self.may_go_on.clear()
                yield b"more"
        finally:
            self.has_ended.set()


async def connect(
    server: Server, request: bytes = REQUEST, *, limit: int = 65_536
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection over which a stream was asked for. It holds about `limit` bytes that are not read yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=limit)
    writer.write(request)
    return reader, writer


async def test_head_and_chunks_reach_the_client_while_the_stream_is_open() -> None:
    held = Held()
    async with serving(app_of(route(held))) as server, client_of(server) as client:
        answer = await client.get("/things")
        assert (answer.status, answer.headers["Transfer-Encoding"]) == (200, "chunked")
        for _ in range(3):
            held.may_go_on.set()
            assert await answer.content.readany() == b"more"

        answer.close()
        async with asyncio.timeout(WAIT):
            await held.has_ended.wait()


async def test_a_stream_that_ends_leaves_the_connection_for_the_next_request() -> None:
    app = app_of(
        route(Feed(b"one", b"two", is_endless=False)), route(answering(Response(body=b'"fine"')), path="/other")
    )
    async with serving(app) as server, client_of(server) as client:
        answer = await client.get("/things")
        assert await answer.read() == b"onetwo"
        assert await (await client.get("/other")).json() == "fine"


async def test_a_client_that_goes_ends_its_stream() -> None:
    feed = Feed(b"one")
    async with serving(app_of(route(feed))) as server, asyncio.timeout(WAIT):
        reader, writer = await connect(server)
        await reader.readuntil(b"one")

        writer.close()

        await feed.has_ended.wait()


async def test_a_stream_ends_with_its_client_even_if_a_request_waits_behind_it() -> None:
    held = Held()
    async with serving(app_of(route(held))) as server, asyncio.timeout(WAIT):
        reader, writer = await connect(server, REQUEST + REQUEST)
        held.may_go_on.set()
        await reader.readuntil(b"more")
        # Reset, not closed: with a request waiting, the server reads no more and notices only when it writes.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

        while not held.has_ended.is_set():
            held.may_go_on.set()
            await asyncio.sleep(0)


async def test_a_client_that_takes_nothing_of_a_stream_is_given_up() -> None:
    flood = Flood()
    server = Server(app_of(route(flood)), address=LOOPBACK, log=LOG, send_timeout=timedelta(milliseconds=1))
    await server.open()
    _, writer = await connect(server, limit=1)

    async with asyncio.timeout(WAIT):
        await flood.has_ended.wait()

    writer.transport.abort()
    await server.close()


async def test_stopping_ends_streams_and_their_clients_see_a_whole_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed, stopping = Feed(b"one"), Stopping()
    caplog.set_level(logging.WARNING)
    async with serving(app_of(route(feed))) as server, client_of(server) as client, asyncio.timeout(WAIT):
        answer = await client.get("/things")
        assert await answer.content.readany() == b"one"

        stopping.request()
        await server.run(stopping)

        assert await answer.content.read() == b""

    assert feed.has_ended.is_set()
    assert not caplog.records


async def test_under_a_lifecycle_streams_do_not_use_up_the_drain() -> None:
    feed = Feed(b"one")
    server = Server(app_of(route(feed)), address=LOOPBACK, log=LOG)
    running = Running(server, drain=timedelta(hours=1))

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        async with client_of(server) as client:
            answer = await client.get("/things")
            assert await answer.content.readany() == b"one"
            running.stopping.request()
            assert await answer.content.read() == b""

    assert service.result() == 0


async def test_a_client_that_takes_nothing_does_not_keep_a_server_from_stopping() -> None:
    flood, stopping = Flood(), Stopping()
    async with serving(app_of(route(flood))) as server, asyncio.timeout(WAIT):
        _, writer = await connect(server, limit=1)
        await flood.is_full.wait()

        stopping.request()
        await server.run(stopping)

        writer.transport.abort()

    assert flood.has_ended.is_set()


async def test_a_connection_that_is_closed_delivers_for_a_moment_only(caplog: pytest.LogCaptureFixture) -> None:
    has_closed = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16_000_000), "more_body": True})
        connection_of(scope).close()
        has_closed.set()

    caplog.set_level(logging.WARNING)
    async with serving(app) as server, asyncio.timeout(WAIT):
        _, writer = await connect(server, limit=1)
        await has_closed.wait()

        await server.close()

        writer.transport.abort()

    assert not caplog.records


async def test_a_stream_that_fails_breaks_off_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError("oh")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    caplog.set_level(logging.WARNING)
    async with serving(app_of(route(handler))) as server, client_of(server) as client:
        answer = await client.get("/things")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()

    assert [record.getMessage() for record in caplog.records] == ["http.failed"]

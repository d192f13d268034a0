"""Streams on loopback sockets: flushing, disconnects, and stopping."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.web.asgi import Receive, Scope, Send, connection_of
from sentinel.web.routing import Request, Response, Stream
from sentinel.web.server import Server
from tests.web.asgi_client import LOG, TIMEOUT, make_app, returning, route
from tests.web.loopback_server import LOOPBACK, RunningService, client_of, serving
from tests.web.stream_client import Feed

REQUEST = b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"


class EndlessStream(ABC):
    """A handler whose stream never ends by itself."""

    def __init__(self) -> None:
        self.has_ended = asyncio.Event()

    async def __call__(self, request: Request) -> Stream:
        return Stream(content=self._content(), content_type="application/octet-stream")

    async def _content(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield await self.next_chunk()
        finally:
            self.has_ended.set()

    @abstractmethod
    async def next_chunk(self) -> bytes: ...


class Flood(EndlessStream):
    """Fills the buffers of any connection."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = asyncio.Event()
        self._chunks = 0

    async def next_chunk(self) -> bytes:
        if self._chunks:
            self.is_full.set()
        self._chunks += 1
        return bytes(16_000_000)


class StepwiseStream(EndlessStream):
    """Sends a chunk when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def next_chunk(self) -> bytes:
        await self.may_go_on.wait()
        self.may_go_on.clear()
        return b"more"


async def connect(
    server: Server, request: bytes = REQUEST, *, limit: int = 65_536
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send a request. `limit` is the size of the reader's buffer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=limit)
    writer.write(request)
    return reader, writer


async def test_chunks_reach_the_client_while_the_stream_is_open() -> None:
    handler = StepwiseStream()
    async with serving(make_app(route(handler))) as server, client_of(server) as client:
        response = await client.get("/things")
        assert (response.status, response.headers["Transfer-Encoding"]) == (200, "chunked")
        for _ in range(3):
            handler.may_go_on.set()
            assert await response.content.readany() == b"more"

        response.close()
        async with asyncio.timeout(TIMEOUT):
            await handler.has_ended.wait()


async def test_a_connection_is_reused_after_a_stream() -> None:
    app = make_app(
        route(Feed(b"one", b"two", is_endless=False)), route(returning(Response(body=b'"fine"')), path="/other")
    )
    async with serving(app) as server, client_of(server) as client:
        response = await client.get("/things")
        assert await response.read() == b"onetwo"
        assert await (await client.get("/other")).json() == "fine"


async def test_a_disconnect_ends_the_stream() -> None:
    feed = Feed(b"one")
    async with serving(make_app(route(feed))) as server, asyncio.timeout(TIMEOUT):
        reader, writer = await connect(server)
        await reader.readuntil(b"one")

        writer.close()

        await feed.has_ended.wait()


async def test_a_disconnect_ends_the_stream_despite_a_queued_request() -> None:
    handler = StepwiseStream()
    async with serving(make_app(route(handler))) as server, asyncio.timeout(TIMEOUT):
        reader, writer = await connect(server, REQUEST + REQUEST)
        handler.may_go_on.set()
        await reader.readuntil(b"more")
        # Reset, not closed: with a queued request the server has paused reading, and only a write fails.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

        while not handler.has_ended.is_set():
            handler.may_go_on.set()
            await asyncio.sleep(0)


async def test_a_client_that_reads_nothing_of_a_stream_is_dropped() -> None:
    flood = Flood()
    server = Server(make_app(route(flood)), address=LOOPBACK, log=LOG, send_timeout=timedelta(milliseconds=1))
    await server.open()
    _, writer = await connect(server, limit=1)

    async with asyncio.timeout(TIMEOUT):
        await flood.has_ended.wait()

    writer.transport.abort()
    await server.close()


async def test_stopping_ends_streams_with_a_complete_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed, stopping = Feed(b"one"), Stopping()
    caplog.set_level(logging.WARNING)
    async with serving(make_app(route(feed))) as server, client_of(server) as client, asyncio.timeout(TIMEOUT):
        response = await client.get("/things")
        assert await response.content.readany() == b"one"

        stopping.request()
        await server.run(stopping)

        assert await response.content.read() == b""

    assert feed.has_ended.is_set()
    assert not caplog.records


async def test_as_a_part_streams_do_not_delay_the_drain() -> None:
    feed = Feed(b"one")
    server = Server(make_app(route(feed)), address=LOOPBACK, log=LOG)
    running = RunningService(server, drain=timedelta(hours=1))

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        async with client_of(server) as client:
            response = await client.get("/things")
            assert await response.content.readany() == b"one"
            running.stopping.request()
            assert await response.content.read() == b""

    assert service.result() == 0


async def test_a_client_that_reads_nothing_does_not_delay_a_stop() -> None:
    flood, stopping = Flood(), Stopping()
    async with serving(make_app(route(flood))) as server, asyncio.timeout(TIMEOUT):
        _, writer = await connect(server, limit=1)
        await flood.is_full.wait()

        stopping.request()
        await server.run(stopping)

        writer.transport.abort()

    assert flood.has_ended.is_set()


async def test_a_closed_connection_is_flushed_only_briefly(caplog: pytest.LogCaptureFixture) -> None:
    has_closed = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16_000_000), "more_body": True})
        connection_of(scope).close()
        has_closed.set()

    caplog.set_level(logging.WARNING)
    async with serving(app) as server, asyncio.timeout(TIMEOUT):
        _, writer = await connect(server, limit=1)
        await has_closed.wait()

        await server.close()

        writer.transport.abort()

    assert not caplog.records


async def test_a_failing_stream_is_truncated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError("oh")

    async def handler(request: Request) -> Stream:
        return Stream(content=content(), content_type="text/plain")

    caplog.set_level(logging.WARNING)
    async with serving(make_app(route(handler))) as server, client_of(server) as client:
        response = await client.get("/things")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()

    assert [record.getMessage() for record in caplog.records] == ["http.failed"]

"""Responses that are read line by line while they arrive."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeAlias

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, StreamIdle, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.responses import LineSplitter
from sentinel.drivers.rest.token import BasicCredentials, BearerToken
from tests.support.http.loopback import listen
from tools.services.server import free_port

TOKEN = "snt_very-secret"
SECOND = timedelta(seconds=1)

Stream: TypeAlias = Callable[[web.StreamResponse], Awaitable[None]]


class StreamingServer:
    """Sends what a test writes."""

    def __init__(self) -> None:
        self.url = ""
        self.stream: Stream = self.send_nothing
        self.status = 200
        self.headers: list[dict[str, str]] = []
        self.gone = asyncio.Event()
        """Set when a response was given up."""

    async def send_nothing(self, response: web.StreamResponse) -> None:
        await asyncio.Event().wait()

    def sends(self, *chunks: bytes) -> None:
        async def stream(response: web.StreamResponse) -> None:
            for chunk in chunks:
                await response.write(chunk)

        self.stream = stream

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        try:
            await self.stream(response)
        finally:
            self.gone.set()
        return response


@pytest.fixture
async def server() -> AsyncIterator[StreamingServer]:
    streaming = StreamingServer()
    runner = web.ServerRunner(web.Server(streaming.respond, handler_cancellation=True), shutdown_timeout=0.1)
    streaming.url = await listen(runner)
    yield streaming
    await runner.cleanup()


@pytest.fixture
async def client(server: StreamingServer) -> AsyncIterator[RestClient]:
    opened = RestClient(base_url=server.url, user_agent="test/1", token=BearerToken(TOKEN))
    yield opened
    await opened.close()


async def read(client: RestClient, *, limit: int = 1000, idle_timeout: timedelta = 60 * SECOND) -> list[bytes]:
    async with aclosing(
        client.stream_lines("GET", "/x", timeout=60 * SECOND, idle_timeout=idle_timeout, limit=limit)
    ) as lines:
        return [line async for line in lines]


async def test_complete_lines_are_yielded(server: StreamingServer, client: RestClient) -> None:
    server.sends(b"one\nt", b"", b"wo", b"\n\nthree\n")

    assert await read(client) == [b"one", b"two", b"", b"three"]
    assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"


async def test_an_empty_response_has_no_line(server: StreamingServer, client: RestClient) -> None:
    server.sends()

    assert await read(client) == []


async def test_a_response_that_ends_within_a_line_is_broken(server: StreamingServer, client: RestClient) -> None:
    server.sends(b"one\ntw")

    with pytest.raises(Unreachable, match="the response ended within a line") as caught:
        await read(client)

    assert caught.value.reason is UnreachableReason.BROKEN


async def test_a_long_line_is_refused(server: StreamingServer, client: RestClient) -> None:
    server.sends(b"x" * 8, b"x" * 8)

    with pytest.raises(TooLarge, match="expected a line of at most 10 bytes, got more"):
        await read(client, limit=10)


async def test_an_idle_stream_is_noticed(server: StreamingServer, client: RestClient) -> None:
    with pytest.raises(StreamIdle, match=r"nothing received for 0\.05 s"):
        await read(client, idle_timeout=SECOND / 20)

    async with asyncio.timeout(60):
        await server.gone.wait()


async def test_an_error_status_is_a_rejection(server: StreamingServer, client: RestClient) -> None:
    server.status = 403
    server.sends(f"not for {TOKEN}".encode())

    with pytest.raises(RequestRejected) as caught:
        await read(client)

    assert str(caught.value) == "403 Forbidden: not for ***"
    assert caught.value.body == f"not for {TOKEN}".encode()
    assert TOKEN not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)


async def test_a_refused_connection_is_unreachable(server: StreamingServer) -> None:
    client = RestClient(base_url=f"http://127.0.0.1:{free_port()}", user_agent="test/1")

    with pytest.raises(Unreachable) as caught:
        await read(client)

    assert caught.value.reason is UnreachableReason.CONNECTION
    await client.close()


async def test_closing_the_generator_ends_the_request(server: StreamingServer, client: RestClient) -> None:
    async def stream(response: web.StreamResponse) -> None:
        await response.write(b"one\n")
        await asyncio.Event().wait()

    server.stream = stream
    lines = client.stream_lines("GET", "/x", timeout=60 * SECOND, idle_timeout=60 * SECOND)
    assert await anext(lines) == b"one"

    await lines.aclose()

    async with asyncio.timeout(60):
        await server.gone.wait()


async def test_a_name_and_a_password_replace_the_token(server: StreamingServer) -> None:
    server.sends()
    client = RestClient(base_url=server.url, user_agent="test/1", token=BasicCredentials("me", "secret"))

    await read(client)
    await client.close()

    assert server.headers[0]["Authorization"] == "Basic bWU6c2VjcmV0"


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_do_not_depend_on_how_they_are_split(lines: list[bytes], data: st.DataObject) -> None:
    content = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=10)))
    splitter = LineSplitter(20)

    found = []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        found += splitter.feed(content[start:end])

    assert found == lines
    assert not splitter.has_rest


@given(st.integers(0, 30), st.integers(1, 30))
def test_a_line_may_be_as_long_as_the_limit(length: int, size: int) -> None:
    line = b"x" * length
    splitter = LineSplitter(20)
    found: list[bytes] = []

    try:
        for start in range(0, length + 1, size):
            found += splitter.feed((line + b"\n")[start : start + size])
    except TooLarge:
        assert length > 20
    else:
        assert (length <= 20, found) == (True, [line])

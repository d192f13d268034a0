"""The server on loopback sockets: limits, misbehaving clients, and stopping."""

from __future__ import annotations

import asyncio
import io
import re
import signal
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import ListenError
from sentinel.web.asgi import App, Receive, Scope, Send
from sentinel.web.body import Body
from sentinel.web.connection import ResponseTransport
from sentinel.web.routing import Method, Request, Response
from sentinel.web.server import Server
from tests.web.asgi_client import LOG, TIMEOUT, BlockingHandler, make_app, returning, route
from tests.web.loopback_server import LOOPBACK, RunningService, client_of, serving

JSON = {"Content-Type": "application/json"}


async def measure(request: Request) -> Response:
    return Response(body=str(len(await request.body())).encode())


def simple_app() -> App:
    return make_app(
        route(returning(Response(body=b'"fine"'))),
        route(measure, method=Method.POST, body=Body(type=object, limit=1000)),
    )


async def send_raw(server: Server, *chunks: bytes) -> bytes:
    """Send bytes, and return what the server sends until it closes the connection."""
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        try:
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def test_port_0_picks_a_port() -> None:
    async with serving(simple_app()) as server, client_of(server) as client:
        response = await client.get("/things")

        assert server.address.port != 0
        assert (response.status, await response.json()) == (200, "fine")


async def test_a_response_has_no_server_header() -> None:
    async with serving(simple_app()) as server, client_of(server) as client:
        response = await client.get("/things")

        assert "Server" not in response.headers
        assert "Date" in response.headers


async def test_an_occupied_port_is_a_clear_error() -> None:
    async with serving(simple_app()) as server:
        with pytest.raises(ListenError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use"):
            await Server(simple_app(), address=server.address, log=LOG).open()


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with serving(simple_app()) as server, client_of(server) as client:
        response = await client.head("/things")

        assert (response.status, response.headers["Content-Length"], await response.read()) == (200, "6", b"")


@pytest.mark.parametrize("is_announced", [True, False])
async def test_the_client_can_read_why_a_large_body_was_rejected(is_announced: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    async with serving(simple_app()) as server, client_of(server) as client:
        body = io.BytesIO(b" " * 10_000_000) if is_announced else chunks()

        response = await client.post("/things", data=body, headers=JSON)

        assert response.status == 413
        assert (await response.json(content_type=None))["code"] == "HYPERFLEET-LMT-002"


async def test_a_body_of_four_megabytes_is_accepted_up_to_its_limit() -> None:
    app = make_app(route(measure, method=Method.POST, body=Body(type=object, limit=5 * 1024 * 1024)))
    async with serving(app) as server, client_of(server) as client:
        response = await client.post("/things", data=io.BytesIO(b'"%b"' % (b"x" * 3_999_998)), headers=JSON)

        assert await response.read() == b"4000000"


async def test_expect_100_continue_is_honoured() -> None:
    async with serving(simple_app()) as server, client_of(server) as client:
        response = await client.post("/things", data=b"[1, 2]", headers=JSON, expect100=True)

        assert await response.read() == b"6"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /things HTTP/1.1\r\nHost localhost\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /things HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET /things HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 40_000 + b"\r\n", b"431"),
    ],
)
async def test_malformed_or_oversized_requests_get_a_problem(request_: bytes, status: bytes) -> None:
    async with serving(simple_app()) as server:
        response = await send_raw(server, request_)

        assert response.startswith(b"HTTP/1.1 " + status)
        assert b"application/problem+json" in response


async def test_a_protocol_upgrade_is_ignored() -> None:
    async with serving(simple_app()) as server:
        response = await send_raw(
            server,
            b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )

        assert response.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in response


async def test_pipelined_requests_are_answered_in_order() -> None:
    request = b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with serving(simple_app()) as server:
        response = await send_raw(server, request + request + last)

        assert re.findall(rb"HTTP/1.1 (\d+)", response) == [b"200", b"200", b"404"]


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1_000_000])
async def test_bodies_of_any_size_are_sent(size: int) -> None:
    async with serving(make_app(route(returning(Response(body=b"x" * size))))) as server:
        response = await send_raw(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

        head, _, body = response.partition(b"\r\n\r\n")
        assert b"content-length: %d" % size in head
        assert body == b"x" * size


@pytest.mark.parametrize("sizes", [(0, 0), (3, 4, 5), (10, 65_536, 10), (65_526, 5, 5), (1, 1_000_000, 0)])
async def test_the_pieces_of_a_body_are_sent_in_order(sizes: tuple[int, ...]) -> None:
    pieces = tuple(b"%d" % number * size for number, size in enumerate(sizes))
    async with serving(make_app(route(returning(Response(body=pieces))))) as server:
        response = await send_raw(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

        head, _, body = response.partition(b"\r\n\r\n")
        assert b"content-length: %d" % sum(sizes) in head
        assert body == b"".join(pieces)


async def test_sending_pieces_does_not_wait_for_a_slow_client() -> None:
    has_sent = asyncio.Event()
    pieces = 8 * (b"x" * 8_000_000,)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % sum(map(len, pieces)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})
        has_sent.set()

    async with serving(app) as server, asyncio.timeout(TIMEOUT):
        _, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        await has_sent.wait()

        writer.transport.abort()


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    is_gone = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16_000_000), "more_body": True})
        for _ in range(2):  # the request and the disconnect
            last = await receive()
        assert last["type"] == "http.disconnect"
        is_gone.set()

    server = Server(app, address=LOOPBACK, log=LOG, send_timeout=timedelta(milliseconds=1))
    await server.open()
    _, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async with asyncio.timeout(TIMEOUT):
        await is_gone.wait()

    writer.transport.abort()
    await server.close()


async def test_headers_without_a_length_are_sent_at_once() -> None:
    head_was_read = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await head_was_read.wait()
        await send({"type": "http.response.body", "body": b"at last", "more_body": False})

    async with serving(stream) as server, client_of(server) as client:
        response = await client.get("/")
        head_was_read.set()

        assert await response.read() == b"at last"


async def test_an_incomplete_response_closes_the_connection() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})

    async with serving(broken) as server:
        response = await send_raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert response.startswith(b"HTTP/1.1 200")
        assert response.endswith(b"\r\n\r\n")


async def test_stopping_finishes_requests_in_progress() -> None:
    handler, stopping = BlockingHandler(), Stopping()
    async with serving(make_app(route(handler))) as server, client_of(server) as client:
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run(stopping))
            response = tasks.create_task(client.get("/things"))
            await handler.has_started.wait()
            stopping.request()
            while True:  # until the socket is closed, or the timeout expires
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
                except ConnectionRefusedError:
                    break
                writer.close()
                await asyncio.sleep(0)
            assert not running.done()
            handler.may_end.set()

        assert await response.result().json() == "done"


async def test_closing_twice_or_before_opening_is_harmless() -> None:
    server = Server(simple_app(), address=LOOPBACK, log=LOG)

    await server.close()
    await server.open()
    await server.close()
    await server.close()


async def test_as_a_part_it_does_not_handle_signals() -> None:
    server = Server(simple_app(), address=LOOPBACK, log=LOG)
    running = RunningService(server)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        async with client_of(server) as client:
            assert (await client.get("/things")).status == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        running.stopping.request()

    assert service.result() == 0


async def test_an_endless_request_is_aborted_after_the_drain() -> None:
    handler = BlockingHandler()
    server = Server(make_app(route(handler)), address=LOOPBACK, log=LOG, close_timeout=timedelta(milliseconds=50))
    running = RunningService(server, drain=timedelta(milliseconds=50))

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        client = tasks.create_task(send_raw(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        await handler.has_started.wait()
        running.stopping.request()

    assert service.result() == 0
    assert b"done" not in client.result()


class _RecordingTransport(asyncio.Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(len(data))


@pytest.mark.parametrize(
    ("pieces", "writes"),
    [
        ((40, 900_000, 60), [100 + 40, 900_000, 60]),
        ((900_000, 60), [100, 900_000, 60]),
        ((900_000,), [100, 900_000]),
        ((40, 500, 60), [700]),
    ],
)
def test_a_small_first_piece_is_sent_with_the_headers(pieces: tuple[int, ...], writes: list[int]) -> None:
    recorder = _RecordingTransport()
    transport = ResponseTransport(recorder)

    transport.write((b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % sum(pieces)).ljust(100))
    for size in pieces:
        transport.write(b"x" * size)

    assert recorder.written == writes

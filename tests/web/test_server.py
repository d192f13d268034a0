"""The server over real sockets on loopback: limits, misbehaving clients, and how it stops."""

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
from sentinel.web.routing import Method, Request, Response
from sentinel.web.server import Server
from tests.web.calling import LOG, answering, app_of, route
from tests.web.serving import LOOPBACK, WAIT, Running, client_of, serving

JSON = {"Content-Type": "application/json"}


class Held:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.has_begun.set()
        await self.may_end.wait()
        return Response(body=b'"done"')


async def measure(request: Request) -> Response:
    return Response(body=str(len(await request.body())).encode())


def everything() -> App:
    return app_of(
        route(answering(Response(body=b'"fine"'))),
        route(measure, method=Method.POST, body=Body(type=object, limit=1000)),
    )


async def say(server: Server, *words: bytes) -> bytes:
    """Sends bytes on a connection, and returns what comes until the server closes it."""
    async with asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        try:
            for word in words:
                writer.write(word)
                await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def test_port_0_picks_a_port_and_says_which() -> None:
    async with serving(everything()) as server, client_of(server) as client:
        answer = await client.get("/things")

        assert server.address.port != 0
        assert (answer.status, await answer.json()) == (200, "fine")


async def test_an_answer_tells_nothing_about_what_serves_it() -> None:
    async with serving(everything()) as server, client_of(server) as client:
        answer = await client.get("/things")

        assert "Server" not in answer.headers
        assert "Date" in answer.headers


async def test_an_occupied_port_is_a_clear_error() -> None:
    async with serving(everything()) as server:
        with pytest.raises(ListenError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use"):
            await Server(everything(), address=server.address, log=LOG).open()


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with serving(everything()) as server, client_of(server) as client:
        answer = await client.head("/things")

        assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "6", b"")


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_of_ten_megabytes_is_refused_and_the_client_gets_to_read_why(is_announced: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    async with serving(everything()) as server, client_of(server) as client:
        body = io.BytesIO(b" " * 10_000_000) if is_announced else chunks()

        answer = await client.post("/things", data=body, headers=JSON)

        assert answer.status == 413
        assert (await answer.json(content_type=None))["code"] == "HYPERFLEET-LMT-002"


async def test_a_body_of_four_megabytes_is_taken_where_its_limit_says_so() -> None:
    app = app_of(route(measure, method=Method.POST, body=Body(type=object, limit=5 * 1024 * 1024)))
    async with serving(app) as server, client_of(server) as client:
        answer = await client.post("/things", data=io.BytesIO(b'"%b"' % (b"x" * 3_999_998)), headers=JSON)

        assert await answer.read() == b"4000000"


async def test_a_body_that_is_not_sent_before_it_is_asked_for_is_asked_for() -> None:
    async with serving(everything()) as server, client_of(server) as client:
        answer = await client.post("/things", data=b"[1, 2]", headers=JSON, expect100=True)

        assert await answer.read() == b"6"


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
async def test_what_is_not_http_or_endless_is_refused_with_a_problem(request_: bytes, status: bytes) -> None:
    async with serving(everything()) as server:
        answer = await say(server, request_)

        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"application/problem+json" in answer


async def test_a_request_to_speak_another_protocol_is_answered_in_this_one() -> None:
    async with serving(everything()) as server:
        answer = await say(
            server,
            b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )

        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer


async def test_requests_in_a_row_on_one_connection_are_answered_in_order() -> None:
    request = b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with serving(everything()) as server:
        answer = await say(server, request + request + last)

        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"404"]


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1_000_000])
async def test_a_body_of_any_size_follows_its_head(size: int) -> None:
    async with serving(app_of(route(answering(Response(body=b"x" * size))))) as server:
        answer = await say(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"content-length: %d" % size in head
        assert body == b"x" * size


@pytest.mark.parametrize("sizes", [(0, 0), (3, 4, 5), (10, 65_536, 10), (65_526, 5, 5), (1, 1_000_000, 0)])
async def test_the_pieces_of_a_body_follow_each_other(sizes: tuple[int, ...]) -> None:
    pieces = tuple(b"%d" % number * size for number, size in enumerate(sizes))
    async with serving(app_of(route(answering(Response(body=pieces))))) as server:
        answer = await say(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"content-length: %d" % sum(sizes) in head
        assert body == b"".join(pieces)


async def test_who_answers_in_pieces_does_not_wait_for_a_client_that_does_not_read() -> None:
    has_answered = asyncio.Event()
    pieces = 8 * (b"x" * 8_000_000,)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % sum(map(len, pieces)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})
        has_answered.set()

    async with serving(answer) as server, asyncio.timeout(WAIT):
        _, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        await has_answered.wait()

        writer.transport.abort()


async def test_a_client_that_takes_nothing_of_its_answer_is_given_up() -> None:
    is_gone = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16_000_000), "more_body": True})
        for _ in range(2):  # the request, and that its sender has gone
            last = await receive()
        assert last["type"] == "http.disconnect"
        is_gone.set()

    server = Server(answer, address=LOOPBACK, log=LOG, send_timeout=timedelta(milliseconds=1))
    await server.open()
    _, writer = await asyncio.open_connection("127.0.0.1", server.address.port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async with asyncio.timeout(WAIT):
        await is_gone.wait()

    writer.transport.abort()
    await server.close()


async def test_the_head_of_an_answer_without_a_length_does_not_wait_for_what_follows() -> None:
    head_was_read = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await head_was_read.wait()
        await send({"type": "http.response.body", "body": b"at last", "more_body": False})

    async with serving(stream) as server, client_of(server) as client:
        answer = await client.get("/")
        head_was_read.set()

        assert await answer.read() == b"at last"


async def test_an_answer_that_breaks_off_ends_with_the_connection() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})

    async with serving(broken) as server:
        answer = await say(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"\r\n\r\n")


async def test_stopping_finishes_the_requests_under_way_and_takes_no_more() -> None:
    held, stopping = Held(), Stopping()
    async with serving(app_of(route(held))) as server, client_of(server) as client:
        async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run(stopping))
            asking = tasks.create_task(client.get("/things"))
            await held.has_begun.wait()
            stopping.request()
            while True:  # until the socket is closed; bounded by the timeout around it
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
                except ConnectionRefusedError:
                    break
                writer.close()
                await asyncio.sleep(0)
            assert not running.done()
            held.may_end.set()

        assert await asking.result().json() == "done"


async def test_closing_twice_or_without_having_opened_is_harmless() -> None:
    server = Server(everything(), address=LOOPBACK, log=LOG)

    await server.close()
    await server.open()
    await server.close()
    await server.close()


async def test_under_a_lifecycle_it_is_a_part_that_leaves_signals_alone() -> None:
    server = Server(everything(), address=LOOPBACK, log=LOG)
    running = Running(server)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        async with client_of(server) as client:
            assert (await client.get("/things")).status == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        running.stopping.request()

    assert service.result() == 0


async def test_a_request_that_never_ends_is_cut_off_when_the_drain_is_over() -> None:
    held = Held()
    server = Server(app_of(route(held)), address=LOOPBACK, log=LOG, close_timeout=timedelta(milliseconds=50))
    running = Running(server, drain=timedelta(milliseconds=50))

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        service = tasks.create_task(running.run())
        await running.open()
        client = tasks.create_task(say(server, b"GET /things HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        await held.has_begun.wait()
        running.stopping.request()

    assert service.result() == 0
    assert b"done" not in client.result()

"""Requests reach a target, and responses the client, as they were sent."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tests.proxy.running_proxy import client, forward_all, running_proxy
from tests.support.http.loopback import listen
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.http.stream_server import BytesServer


def hello(request: ReceivedRequest) -> ScriptedResponse:
    return ScriptedResponse(201, b"hello", {"X-From": "backend", "Content-Type": "text/plain"})


async def test_a_request_and_its_response_pass_unchanged() -> None:
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
        http.post(
            f"{proxy.url}/a%2Fb/../c?q=%20&r", data=b"body", headers={"X-To": "1", "User-Agent": "me"}
        ) as response,
    ):
        body = await response.read()

    (received,) = backend.requests
    assert (response.status, body, response.headers["X-From"]) == (201, b"hello", "backend")
    assert (received.method, received.body) == ("POST", b"body")
    assert received.headers["X-To"] == "1"
    assert received.headers["User-Agent"] == "me"


async def test_a_path_is_forwarded_byte_for_byte() -> None:
    async with ScriptedServer(hello) as backend, running_proxy(forward_all(backend.url)) as proxy:
        host, port = proxy.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /a%2Fb/../c?q=%20&r HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    assert backend.requests[0].path == "/a%2Fb/../c?q=%20&r"


async def test_the_target_learns_who_asked_for_what() -> None:
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        headers = {
            "Host": "shop.test",
            "X-Forwarded-For": "9.9.9.9",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
        }
        await http.get(proxy.url, headers=headers)

    received = backend.requests[0].headers
    assert received["Host"] == "shop.test"
    assert received["X-Forwarded-For"] == "9.9.9.9, 127.0.0.1"
    assert received["X-Forwarded-Host"] == "shop.test"
    assert received["X-Forwarded-Proto"] == "http"
    assert len(received["X-Request-ID"]) == 16
    assert "X-Hop" not in received


async def test_header_policies_change_requests_and_responses() -> None:
    policies = """policies {
        request-headers { set { X-A "1" }; remove "X-B" }
        response-headers { rename { X-From "X-Source" }; add { X-C "2" } }
    }"""
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url, route=policies)) as proxy,
        client() as http,
    ):
        response = await http.get(proxy.url, headers={"X-A": "0", "X-B": "0"})

    received = backend.requests[0].headers
    assert received["X-A"] == "1"
    assert "X-B" not in received
    assert (response.headers["X-Source"], response.headers["X-C"]) == ("backend", "2")
    assert "X-From" not in response.headers


async def test_no_header_is_added_to_a_response_but_the_date() -> None:
    policies = 'policies { response-headers { remove "Server" } }'
    async with (
        BytesServer(b"HTTP/1.1 200 OK\r\nServer: secret\r\nContent-Length: 2\r\n\r\nok") as backend,
        running_proxy(forward_all(backend.url, route=policies)) as proxy,
        client() as http,
    ):
        response = await http.get(proxy.url)

    assert set(response.headers) == {"Content-Length", "Date"}


async def test_a_policy_cannot_change_where_a_message_ends() -> None:
    policies = """policies {
        request-headers { set { Content-Length "1"; Connection "close" }; add { Transfer-Encoding "chunked" } }
        response-headers { set { Content-Length "1" }; remove "Content-Length"; add { Transfer-Encoding "gzip" } }
    }"""
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url, route=policies)) as proxy,
        client() as http,
    ):
        response = await http.post(proxy.url, data=b"body")
        body = await response.read()

    assert (backend.requests[0].body, body) == (b"body", b"hello")
    assert response.headers["Content-Length"] == "5"
    assert "Transfer-Encoding" not in response.headers


async def test_bodies_are_streamed_in_both_directions() -> None:
    """Each piece is sent only after the previous one has come back."""

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response

    runner = web.ServerRunner(web.Server(echo))
    url = await listen(runner)
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def upload() -> object:
        while piece := await pieces.get():
            yield piece

    try:
        async with running_proxy(forward_all(url)) as proxy, client() as http:
            pieces.put_nowait(b"first")
            async with http.post(proxy.url, data=upload()) as response:
                first = await response.content.readany()
                pieces.put_nowait(b"second")
                second = await response.content.readany()
                pieces.put_nowait(b"")
                rest = await response.content.read()
    finally:
        await runner.cleanup()

    assert (first, second, rest) == (b"first", b"second", b"")


async def test_a_client_that_reads_slowly_slows_the_target_down() -> None:
    """What the target has sent and the client has not read is in buffers, so it must stay small."""
    piece, pieces, sent = bytes(2**18), 256, 0

    async def flood(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(pieces):
            await response.write(piece)
            sent += len(piece)
        await response.write_eof()
        return response

    runner = web.ServerRunner(web.Server(flood))
    url = await listen(runner)
    received, largest_gap = 0, 0
    try:
        async with running_proxy(forward_all(url)) as proxy, client() as http, http.get(proxy.url) as response:
            async for chunk in response.content.iter_chunked(2**14):
                received += len(chunk)
                largest_gap = max(largest_gap, sent - received)
    finally:
        await runner.cleanup()

    assert received == len(piece) * pieces
    assert largest_gap < received / 2


async def test_a_compressed_body_stays_as_it_is() -> None:
    def compressed(request: ReceivedRequest) -> ScriptedResponse:
        return ScriptedResponse(200, b"not really gzip", {"Content-Encoding": "gzip"})

    async with (
        ScriptedServer(compressed) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        response = await http.get(proxy.url)
        body = await response.read()

    assert body == b"not really gzip"
    assert response.headers["Content-Length"] == "15"


async def test_head_and_304_have_no_body_but_a_length() -> None:
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        response = await http.head(proxy.url)

        assert (response.status, response.headers["Content-Length"]) == (201, "5")
        backend.script = lambda request: ScriptedResponse(304, b"", {"ETag": '"1"'})
        unchanged = await http.get(proxy.url)

    assert (unchanged.status, unchanged.headers["ETag"]) == (304, '"1"')


async def test_a_redirect_is_the_clients_business() -> None:
    async with (
        ScriptedServer(lambda request: ScriptedResponse(302, b"", {"Location": "/next"})) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        response = await http.get(proxy.url, allow_redirects=False)

    assert (response.status, response.headers["Location"]) == (302, "/next")
    assert len(backend.requests) == 1


async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    async with (
        ScriptedServer(hello) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
        http.post(proxy.url, data=b"x" * 10, expect100=True) as response,
    ):
        await response.read()

    assert response.status == 201
    assert backend.requests[0].body == b"x" * 10
    assert "Expect" not in backend.requests[0].headers

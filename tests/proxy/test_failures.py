"""Targets that refuse, break off or take too long, and when a request is repeated."""

from __future__ import annotations

import asyncio

import pytest

from tests.proxy.running_proxy import client, forward_all, running_proxy, upstream
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.http.stream_server import BytesServer


def ok(request: ReceivedRequest) -> ScriptedResponse:
    return ScriptedResponse(201)


async def test_a_refused_connection_is_502_and_counted() -> None:
    async with running_proxy(forward_all("http://127.0.0.1:1")) as proxy, client() as http:
        response = await http.get(proxy.url)
        problem = await response.json(content_type="application/problem+json")

        assert (response.status, problem["code"]) == (502, "bad_gateway")
        assert proxy.metric("zentinel_upstream_failures_total", upstream="u", reason="connection") == 1
        assert proxy.metric("zentinel_requests_total", route="all", method="GET", status="502") == 1


@pytest.mark.parametrize(
    "more", ["timeouts { request 1 }", "timeouts { read 1 }"], ids=["the whole request", "no data"]
)
async def test_a_target_that_takes_too_long_is_504(more: str) -> None:
    forever = asyncio.Event()

    async def stuck(request: ReceivedRequest) -> ScriptedResponse:
        await forever.wait()
        return ScriptedResponse()

    async with ScriptedServer(stuck) as backend, running_proxy(forward_all(backend.url, more=more)) as proxy:
        async with client() as http:
            response = await http.get(proxy.url)
        forever.set()

        assert response.status == 504
        assert proxy.metric("zentinel_upstream_failures_total", reason="timeout") == 1


async def test_a_broken_response_does_not_look_complete_to_the_client() -> None:
    half = BytesServer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    async with half as backend, running_proxy(forward_all(backend.url)) as proxy, client() as http:
        response = await http.get(proxy.url)
        with pytest.raises(Exception, match=r"payload|reset"):
            await response.read()

        assert proxy.metric("zentinel_upstream_failures_total", reason="interrupted") == 1


async def test_what_is_not_http_is_502() -> None:
    nonsense = BytesServer(b"SSH-2.0-nonsense\r\n\r\n")
    async with nonsense as backend, running_proxy(forward_all(backend.url)) as proxy, client() as http:
        response = await http.get(proxy.url)

        assert response.status == 502
        assert proxy.metric("zentinel_upstream_failures_total", reason="protocol") == 1


async def test_an_idempotent_request_is_repeated_on_another_target() -> None:
    retry = "retry-policy { max-attempts 2 }"
    routes = f'routes {{ route "all" {{ matches {{ path-prefix "/" }}; upstream "u"; {retry} }} }}\n'
    async with ScriptedServer(ok) as backend:
        text = routes + upstream("u", "http://127.0.0.1:1", backend.url)
        async with running_proxy(text) as proxy, client() as http:
            statuses = [(await http.get(proxy.url)).status for _ in range(4)]
            posted = {(await http.post(proxy.url, data=b"x")).status for _ in range(2)}

    assert statuses == [201] * 4
    assert posted == {201, 502}


async def test_no_more_attempts_are_made_than_the_policy_allows() -> None:
    text = forward_all("http://127.0.0.1:1", route="retry-policy { max-attempts 3 }")
    async with running_proxy(text) as proxy, client() as http:
        response = await http.get(proxy.url)

        assert response.status == 502
        assert proxy.metric("zentinel_upstream_failures_total", reason="connection") == 3

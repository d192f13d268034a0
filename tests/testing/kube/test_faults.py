"""The faults that a test injects into the fake, and the log of its requests."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import aiohttp
import pytest

from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import CONFIG_MAP
from tests.support.kube.objects import config_map, put_config_maps
from tests.support.kube.plain_http import CONFIG_MAPS, PlainHttp, plain_http


class TestFailures:
    async def test_the_next_requests_fail_and_then_no_more(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.fail_next(503, count=2)

        statuses = [(await http.call("GET", CONFIG_MAPS)).status for _ in range(3)]

        assert statuses == [503, 503, 200]

    async def test_a_failure_is_a_status_with_a_delay(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.fail_next(429, retry_after=timedelta(seconds=7))

        response = await http.call("GET", CONFIG_MAPS)

        assert (response.status, response.body["reason"]) == (429, "TooManyRequests")
        assert response.headers["Retry-After"] == "7"
        assert response.body["details"]["retryAfterSeconds"] == 7

    async def test_a_failure_may_be_meant_for_some_requests(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.fail_next(500, verb="create", plural="configmaps")

        listed = await http.call("GET", CONFIG_MAPS)
        other = await http.call("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
        created = await http.call("POST", CONFIG_MAPS, config_map("a"))

        assert (listed.status, other.status, created.status) == (200, 201, 500)
        assert server.objects(CONFIG_MAP) == []

    async def test_responses_can_be_delayed(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.delay_responses(timedelta(milliseconds=50))
        start = time.monotonic()

        await http.call("GET", CONFIG_MAPS)

        assert time.monotonic() - start >= 0.05


class TestConnections:
    async def test_a_stalled_server_sends_nothing_until_it_resumes(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.stall()
            put_config_maps(server, "b")
            missed = asyncio.create_task(watch.summary())
            creating = asyncio.create_task(http.call("POST", CONFIG_MAPS, config_map("c")))
            await server.wait_for_request(lambda request: request.verb == "create")

            assert not missed.done()
            assert not creating.done()
            assert len(server.objects(CONFIG_MAP)) == 2
            server.resume()
            assert await missed == ("ADDED", "b")
            assert (await creating).status == 201

    async def test_a_client_may_leave_a_stalled_server(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.stall()
        creating = asyncio.create_task(http.call("POST", CONFIG_MAPS, config_map("a")))
        await server.wait_for_request(lambda request: request.verb == "create")

        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        while server.open_connections:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.001)
        server.resume()

        assert (await http.call("GET", CONFIG_MAPS)).body["items"] == []
        assert [(request.verb, request.status) for request in server.requests] == [("create", 0), ("list", 200)]

    async def test_refused_connections_are_accepted_again_on_the_same_port(self, server: FakeKubeServer) -> None:
        url = server.url
        server.refuse_connections()

        async with plain_http(url) as http:
            with pytest.raises(aiohttp.ClientConnectorError):
                await http.call("GET", CONFIG_MAPS)
            await server.accept_connections()

            assert (await http.call("GET", CONFIG_MAPS)).status == 200

    async def test_open_connections_survive_a_refusal(self, server: FakeKubeServer, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.refuse_connections()
            put_config_maps(server, "b")

            assert await watch.summary() == ("ADDED", "b")

    async def test_open_connections_can_be_reset(self, server: FakeKubeServer, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.reset_connections()

            with pytest.raises(aiohttp.ClientError):
                await watch.next()

    async def test_a_restart_keeps_objects_and_ends_watches(self, server: FakeKubeServer, http: PlainHttp) -> None:
        url = server.url
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            await server.restart()

            with pytest.raises(aiohttp.ClientError):
                await watch.next()
        assert server.url == url
        assert (await http.call("GET", f"{CONFIG_MAPS}/a")).status == 200

    async def test_leaving_the_context_ends_everything(self) -> None:
        server = FakeKubeServer()
        await server.__aenter__()
        async with plain_http(server.url) as http, http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.stall()

            await server.__aexit__(None, None, None)

            with pytest.raises(aiohttp.ClientError):
                await watch.next()


class TestRequestLog:
    async def test_every_request_is_logged(self, server: FakeKubeServer, http: PlainHttp) -> None:
        await http.call("POST", CONFIG_MAPS, config_map("a"))
        await http.call("GET", f"{CONFIG_MAPS}/missing")
        await http.call("GET", CONFIG_MAPS, limit="1")

        logged = [(each.user, each.verb, each.path, each.status) for each in server.requests]
        assert logged == [
            ("admin", "create", CONFIG_MAPS, 201),
            ("admin", "get", f"{CONFIG_MAPS}/missing", 404),
            ("admin", "list", CONFIG_MAPS, 200),
        ]
        assert server.requests[2].query == {"limit": "1"}
        assert server.requests[2].user_agent == "curl/8.1"

    async def test_the_log_can_be_cleared_between_requests(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.stall()
        waiting = asyncio.create_task(http.call("GET", CONFIG_MAPS))
        await server.wait_for_request(lambda request: request.verb == "list")

        server.clear_requests()
        server.resume()
        assert (await waiting).status == 200
        await http.call("GET", f"{CONFIG_MAPS}/a")

        assert [request.verb for request in server.requests] == ["get"]

"""Watches, and all the ways in which they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Literal

import pytest

from sentinel.drivers.kube.client import KubeClient
from sentinel.ports import kube
from sentinel.ports.kube import Bookmark, KubeError, KubeUnavailable, ObjectChanged, ObjectDeleted, WatchEvent
from tests.drivers.kube.api_server import ApiServer, Exchange, Script, reply_error, status_object
from tests.drivers.kube.conftest import MakeClient
from tests.drivers.kube.kinds import CONFIG, NAMESPACE
from tests.support.loop_time import HOUR, LoopTime
from tools.services.server import free_port

TIMEOUT = timedelta(seconds=60)


async def watch(client: KubeClient, seen: list[WatchEvent]) -> None:
    """Collect events until the watch ends."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        async for event in client.watch(CONFIG, resource_version="5", namespace="blue"):
            seen += [event]  # those before an error count, too


async def watch_fails(client: KubeClient, seen: list[WatchEvent]) -> KubeError | KubeUnavailable:
    """Collect events until the watch fails."""
    with pytest.raises((KubeError, KubeUnavailable)) as caught:
        await watch(client, seen)
    error = caught.value
    assert isinstance(error, KubeError | KubeUnavailable)
    return error


def streaming(*events: tuple[str, object], then: Literal["end", "keep open"]) -> Script:
    """A script that sends events, and then ends the stream or keeps it open."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for kind, value in events:
            await exchange.send_event(kind, value)
        if then == "end":
            await exchange.end()

    return script


class TestEvents:
    async def test_changes_and_bookmarks_come_in_order(self, server: ApiServer, client: KubeClient) -> None:
        server.script = streaming(
            ("ADDED", {"spec": 1}),
            ("MODIFIED", {"spec": 2}),
            ("BOOKMARK", {"kind": "SentinelConfig", "metadata": {"resourceVersion": "8"}}),
            ("DELETED", {"spec": 3}),
            ("NEW_IN_KUBERNETES_2", {}),
            then="end",
        )
        seen: list[WatchEvent] = []

        await watch(client, seen)

        assert seen == [
            ObjectChanged({"spec": 1}),
            ObjectChanged({"spec": 2}),
            Bookmark("8"),
            ObjectDeleted({"spec": 3}),
        ]

    async def test_a_watch_requests_bookmarks_and_an_end(self, server: ApiServer, client: KubeClient) -> None:
        server.script = streaming(then="end")

        async for _ in client.watch(NAMESPACE, resource_version="7", label_selector="a", field_selector="b=c"):
            pass

        assert server.lines == [
            "GET /api/v1/namespaces?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=7"
            "&labelSelector=a&fieldSelector=b=c"
        ]

    async def test_an_event_is_yielded_before_the_next_one_comes(
        self, server: ApiServer, client: KubeClient
    ) -> None:
        server.script = streaming(("ADDED", {"spec": 1}), then="keep open")

        async with asyncio.timeout(TIMEOUT.total_seconds()), aclosing(_watch_all(client)) as events:
            assert await anext(events) == ObjectChanged({"spec": 1})

    async def test_lines_may_be_split_anywhere(self, server: ApiServer, client: KubeClient) -> None:
        content = b'{"type":"ADDED","object":{"a":"\xc3\xa9"}}\n\n{"type":"DELETED","object":{}}\n'

        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            for start in range(len(content)):
                await exchange.send_chunk(content[start : start + 1])
            await exchange.end()

        server.script = script
        seen: list[WatchEvent] = []

        await watch(client, seen)

        assert seen == [ObjectChanged({"a": "é"}), ObjectDeleted({})]


class TestEnds:
    async def test_a_stream_that_the_server_closes_ends_normally(
        self, server: ApiServer, client: KubeClient
    ) -> None:
        server.script = streaming(("ADDED", {}), then="end")
        seen: list[WatchEvent] = []

        await watch(client, seen)

        assert len(seen) == 1

    async def test_a_silent_stream_ends_normally(self, server: ApiServer, make_client: MakeClient) -> None:
        server.script = streaming(("ADDED", {}), then="keep open")
        loop_time = LoopTime()
        events = _watch_all(make_client(idle_timeout=HOUR))
        first = await anext(events)

        following = asyncio.ensure_future(anext(events, None))
        await loop_time.advance_until(following.done)

        assert (first, following.result()) == (ObjectChanged({}), None)

    @pytest.mark.parametrize("end", ["cut", "reset"])
    async def test_a_lost_connection_is_unavailable(self, server: ApiServer, client: KubeClient, end: str) -> None:
        received = asyncio.Event()

        async def script(exchange: Exchange) -> None:
            await streaming(("ADDED", {}), then="keep open")(exchange)
            await received.wait()
            if end == "cut":
                exchange.cut()
            else:
                exchange.reset()

        server.script = script
        events = _watch_all(client)
        await anext(events)
        received.set()

        with pytest.raises(KubeUnavailable, match=f"^{server.url}: "):
            await anext(events)

    async def test_a_stream_cut_within_a_line_is_unavailable(self, server: ApiServer, client: KubeClient) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            await exchange.send_chunk(b'{"type":"ADDED","object":{}}\n{"type":"ADD')
            await exchange.end()

        server.script = script
        seen: list[WatchEvent] = []

        error = await watch_fails(client, seen)

        assert isinstance(error, KubeUnavailable)
        assert str(error) == f"{server.url}: the response ended within a line"
        assert seen == [ObjectChanged({})]

    async def test_a_refused_connection_is_unavailable(self, server: ApiServer, make_client: MakeClient) -> None:
        server.url = f"http://127.0.0.1:{free_port()}"

        assert isinstance(await watch_fails(make_client(), []), KubeUnavailable)

    async def test_a_watch_that_does_not_begin_is_unavailable(
        self, server: ApiServer, make_client: MakeClient
    ) -> None:
        server.script = server.hang
        client = make_client(timeout=timedelta(milliseconds=50), idle_timeout=timedelta(milliseconds=1))

        error = await watch_fails(client, [])

        assert str(error) == f"{server.url}: no complete response within 0.05 s"

    @pytest.mark.parametrize(
        "line", [b"<html>\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":1}\n']
    )
    async def test_a_line_that_is_no_event_is_unavailable(
        self, server: ApiServer, client: KubeClient, line: bytes
    ) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            await exchange.send_chunk(line)

        server.script = script

        with pytest.raises(KubeUnavailable, match="expected an event of a watch, got something else"):
            await watch(client, [])

    async def test_an_endless_line_is_unavailable(self, server: ApiServer, client: KubeClient) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            while True:
                await exchange.send_chunk(bytes(1024 * 1024))

        server.script = script

        with pytest.raises(KubeUnavailable, match="expected a line of at most 8388608 bytes, got more"):
            await watch(client, [])


class TestErrors:
    async def test_an_expired_version_may_be_an_http_status(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply_error(410, "Gone", "too old resource version: 5 (207)")

        error = await watch_fails(client, [])

        assert isinstance(error, kube.ResourceExpired)
        assert str(error) == "too old resource version: 5 (207)"

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (status_object(410, "Expired", "too old"), kube.ResourceExpired),
            (status_object(0, "Expired", "too old"), kube.ResourceExpired),
            (status_object(403, "Forbidden", "no longer allowed"), kube.Forbidden),
            (status_object(429, "TooManyRequests", "storage is (re)initializing"), KubeUnavailable),
            (status_object(500, "InternalError", "unable to decode an event"), KubeUnavailable),
            (status_object(504, "Timeout", "Too large resource version"), KubeUnavailable),
            (status_object(0, "", "something"), KubeUnavailable),
            ({"kind": "Other"}, KubeUnavailable),
            (5, KubeUnavailable),
        ],
    )
    async def test_an_error_in_the_stream_ends_it(
        self, server: ApiServer, client: KubeClient, status: object, expected: type[Exception]
    ) -> None:
        server.script = streaming(("ADDED", {}), ("ERROR", status), ("ADDED", {}), then="keep open")
        seen: list[WatchEvent] = []

        error = await watch_fails(client, seen)

        assert type(error) is expected
        assert seen == [ObjectChanged({})]

    async def test_an_error_in_the_stream_may_request_a_delay(self, server: ApiServer, client: KubeClient) -> None:
        status = status_object(429, "TooManyRequests", "wait", retryAfterSeconds=4)
        server.script = streaming(("ERROR", status), then="end")

        error = await watch_fails(client, [])

        assert isinstance(error, KubeUnavailable)
        assert error.retry_after == timedelta(seconds=4)

    async def test_an_error_in_the_stream_shows_no_token(self, server: ApiServer, make_client: MakeClient) -> None:
        server.script = streaming(("ERROR", status_object(403, "", "not for token-77")), then="end")

        assert str(await watch_fails(make_client(token="token-77"), [])) == "not for ***"


class TestConnections:
    async def test_closing_the_iterator_ends_the_request(self, server: ApiServer, client: KubeClient) -> None:
        server.script = streaming(("ADDED", {}), then="keep open")
        events = _watch_all(client)
        await anext(events)

        await events.aclose()

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await server.closed.wait()

    @pytest.mark.parametrize("is_waiting", [False, True])
    async def test_closing_the_client_ends_its_watches(
        self, server: ApiServer, client: KubeClient, is_waiting: bool
    ) -> None:
        server.script = streaming(("ADDED", {}), then="keep open")
        events = _watch_all(client)
        await anext(events)
        following = asyncio.ensure_future(anext(events))
        if is_waiting:
            await asyncio.sleep(0)

        await client.close()

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            with pytest.raises(KubeUnavailable):
                await following
            await server.closed.wait()

    async def test_many_watches_do_not_block_other_calls(self, server: ApiServer, client: KubeClient) -> None:
        async def script(exchange: Exchange) -> None:
            if "watch=true" not in exchange.call.path:
                await exchange.respond({})
                return
            await streaming(("ADDED", {}), then="keep open")(exchange)

        server.script = script
        watches = [_watch_all(client) for _ in range(150)]
        await asyncio.gather(*(anext(events) for events in watches))

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            assert await client.get(NAMESPACE, "east") == {}

        for events in watches:
            await events.aclose()


def _watch_all(client: KubeClient) -> AsyncGenerator[WatchEvent, None]:
    return client.watch(CONFIG, resource_version="5")

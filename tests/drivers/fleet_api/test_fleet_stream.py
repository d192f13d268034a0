"""The stream of the fleet API over HTTP: reading, resuming, and backing off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from itertools import count, pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from sentinel.core.labels import Selector, equality
from sentinel.drivers.fleet_api.connection import connect
from sentinel.drivers.fleet_api.fleet_stream import HttpFleetStream
from sentinel.drivers.fleet_api.server_wait import ServerWait
from sentinel.drivers.rest.errors import ErrorResponse, RequestRejected
from sentinel.ports.fleet_stream import (
    Changed,
    Connected,
    Disconnected,
    Removed,
    StreamEnd,
    StreamItem,
    Synced,
    Unreadable,
)
from sentinel.runtime.backoff import Backoff
from tests.support.closing import CloseLater
from tests.support.http.event_stream_server import EventStreamServer, Script, StreamConnection, event, resource
from tests.support.loop_time import LoopTime

MILLISECOND, SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
QUICK = Backoff(initial=MILLISECOND, maximum=4 * MILLISECOND)
SYNCED = event("synced", {}, "7")

MakeStream = Callable[..., HttpFleetStream]


@pytest.fixture
def make_stream(close_later: CloseLater) -> MakeStream:
    def make(server: EventStreamServer, **changes: Any) -> HttpFleetStream:
        client = close_later(
            connect(endpoint=server.url, user_agent="test", keep_alive=SECOND, token="s3cret", gzip=True)
        )
        arguments: dict[str, Any] = {
            "resource_type": "clusters",
            "selector": Selector(),
            "timeout": 60 * SECOND,
            "resuming": QUICK,
            "beginning": QUICK,
            "unsupported": QUICK,
        }
        return HttpFleetStream(client, **arguments | changes)

    return make


async def follow(stream: HttpFleetStream, *, until: Callable[[StreamItem], bool]) -> list[StreamItem]:
    """Follow the stream up to an item for which `until` is true."""
    items: list[StreamItem] = []
    async with asyncio.timeout(120), aclosing(stream.follow()) as batches:
        async for batch in batches:
            assert batch
            items += batch
            if any(until(item) for item in batch):
                return items
    raise AssertionError


def nth(number: int, kind: type[StreamItem]) -> Callable[[StreamItem], bool]:
    """Return a condition that is true for the n-th item of a kind."""
    counter = count(1)
    return lambda item: isinstance(item, kind) and next(counter) == number


def is_disconnected(item: StreamItem) -> bool:
    return isinstance(item, Disconnected)


def changed_ids(items: list[StreamItem]) -> list[str]:
    return [item.resource.observation.id for item in items if isinstance(item, Changed)]


def ends(items: list[StreamItem]) -> list[StreamEnd]:
    return [item.reason for item in items if isinstance(item, Disconnected)]


def responds(status: int, body: bytes = b"{}", **headers: str) -> Script:
    async def script(connection: StreamConnection) -> web.StreamResponse:
        return web.Response(
            status=status,
            body=body,
            headers={"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}},
        )

    return script


def sends(*chunks: bytes) -> Script:
    return lambda connection: connection.send(*chunks)


def holds(*chunks: bytes) -> Script:
    return lambda connection: connection.send_and_hold(*chunks)


async def test_changes_are_read_as_they_arrive(make_stream: MakeStream) -> None:
    changes = event("changed", resource("one", 2), "8") + b": comment\n\n" + event("removed", {"id": "two"}, "9")
    script = holds(event("changed", resource("one")), SYNCED[:5], SYNCED[5:] + changes + event("new type", {}))
    async with EventStreamServer(script) as server:
        items = await follow(make_stream(server), until=lambda item: isinstance(item, Removed))

    assert [type(item) for item in items] == [Connected, Changed, Synced, Changed, Removed]
    assert items[0] == Connected(is_resumed=False)
    assert items[-1] == Removed("two")


async def test_the_request_has_labels_fields_and_no_compression(make_stream: MakeStream) -> None:
    selector = Selector((equality("region", "us-east"), equality("tier", "a b")))
    async with EventStreamServer(sends(SYNCED)) as server:
        stream = make_stream(server, selector=selector, fields=("id", "status.phase"))
        await follow(stream, until=is_disconnected)

    (connection, *_) = server.connections
    url = urlsplit(connection.path)
    assert url.path == "/api/hyperfleet/v1/clusters"
    assert dict(parse_qsl(url.query)) == {
        "watch": "true",
        "labels": "region=us-east,tier=a b",
        "fields": "id,status.phase",
    }
    assert connection.headers["Accept"] == "text/event-stream"
    assert connection.headers["Accept-Encoding"] == "identity"
    assert connection.headers["Authorization"] == "Bearer s3cret"
    assert connection.last_event_id is None


async def test_one_resource_has_a_stream_of_its_own(make_stream: MakeStream) -> None:
    async with EventStreamServer(sends(SYNCED)) as server:
        await follow(make_stream(server, resource_id="a/b c"), until=is_disconnected)

    (connection, *_) = server.connections
    assert connection.path == "/api/hyperfleet/v1/clusters/a%2Fb%20c?watch=true"


async def test_an_interrupted_stream_resumes_where_it_was(make_stream: MakeStream) -> None:
    scripts = [
        lambda connection: connection.send_and_break(SYNCED, event("changed", resource("one"), "8")),
        holds(event("changed", resource("two"), "9")),
    ]
    async with EventStreamServer(*scripts) as server:
        items = await follow(make_stream(server), until=lambda item: changed_ids([item]) == ["two"])

    assert [connection.last_event_id for connection in server.connections] == [None, "8"]
    assert [item for item in items if isinstance(item, Connected)] == [Connected(False), Connected(True)]
    assert changed_ids(items) == ["one", "two"]


async def test_an_id_without_an_event_moves_the_position(make_stream: MakeStream) -> None:
    async with EventStreamServer(sends(SYNCED, b"id: 12\n\n"), holds(event("changed", resource("one")))) as server:
        await follow(make_stream(server), until=lambda item: isinstance(item, Changed))

    assert server.connections[1].last_event_id == "12"


async def test_a_stream_that_was_never_in_sync_begins_again(make_stream: MakeStream) -> None:
    slow = Backoff(initial=200 * MILLISECOND, maximum=200 * MILLISECOND, jitter=0)
    async with EventStreamServer(sends(event("changed", resource("one"), "3")), holds(SYNCED)) as server:
        items = await follow(make_stream(server, beginning=slow), until=lambda item: isinstance(item, Synced))

    assert [connection.last_event_id for connection in server.connections] == [None, None]
    assert [item.retry_after for item in items if isinstance(item, Disconnected)] == [200 * MILLISECOND]


async def test_a_position_that_has_expired_begins_again_at_once(make_stream: MakeStream) -> None:
    slow = Backoff(initial=MILLISECOND, factor=1000, maximum=timedelta(days=1), jitter=0)
    scripts = [sends(SYNCED), responds(410), holds(SYNCED)]
    async with EventStreamServer(*scripts) as server:
        items = await follow(make_stream(server, resuming=slow), until=nth(2, Synced))

    assert [connection.last_event_id for connection in server.connections] == [None, "7", None]
    assert ends(items) == [StreamEnd.CLOSED, StreamEnd.EXPIRED]


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_a_server_without_streams_is_recognized(make_stream: MakeStream, status: int) -> None:
    async with EventStreamServer(responds(status)) as server:
        items = await follow(make_stream(server), until=is_disconnected)

    assert ends(items) == [StreamEnd.UNSUPPORTED]


async def test_a_list_in_response_is_no_stream(make_stream: MakeStream) -> None:
    async with EventStreamServer(responds(200, b'{"items":[],"total":0,"page":1}')) as server:
        items = await follow(make_stream(server), until=is_disconnected)

    (ended,) = items
    assert isinstance(ended, Disconnected)
    assert ended.reason is StreamEnd.UNSUPPORTED
    assert ended.problem == "the server does not know streams: expected text/event-stream, got application/json"


async def test_a_silent_stream_is_given_up(make_stream: MakeStream) -> None:
    async with EventStreamServer(holds(SYNCED)) as server:
        stream = make_stream(server, idle_timeout=50 * MILLISECOND)
        items = await follow(stream, until=is_disconnected)

    assert ends(items) == [StreamEnd.IDLE]


async def test_comments_keep_a_stream_alive(make_stream: MakeStream) -> None:
    loop_time = LoopTime()

    async def script(connection: StreamConnection) -> web.StreamResponse:
        response = await connection.send(SYNCED)
        for _ in range(4):
            await asyncio.sleep(0.05)  # the client has read it; nothing says so
            loop_time.advance(10 * SECOND)
            await response.write(b": still here\n\n")
        await asyncio.sleep(0.05)
        await response.write(event("changed", resource("one")))
        return response

    async with EventStreamServer(script) as server:
        stream = make_stream(server, idle_timeout=30 * SECOND)
        items = await follow(stream, until=lambda item: isinstance(item, Changed))

    assert ends(items) == []


async def test_streams_that_end_at_once_are_requested_ever_less(make_stream: MakeStream) -> None:
    backoff = Backoff(initial=10 * MILLISECOND, maximum=10 * SECOND, jitter=0)
    async with EventStreamServer(sends(SYNCED)) as server:
        items = await follow(make_stream(server, resuming=backoff), until=nth(5, Disconnected))

    delays = [item.retry_after for item in items if isinstance(item, Disconnected)]
    assert delays == [n * 10 * MILLISECOND for n in (1, 2, 4, 8, 16)]
    assert all(later - earlier >= 0.009 for earlier, later in pairwise(server.times))


async def test_a_server_that_asks_to_wait_delays_the_stream_and_no_poll(make_stream: MakeStream) -> None:
    wait = ServerWait()
    async with EventStreamServer(responds(503, Retry_After="30")) as server:
        items = await follow(make_stream(server, wait=wait), until=is_disconnected)
        remaining = wait.remaining()

    (ended,) = items
    assert isinstance(ended, Disconnected)
    assert ended.reason is StreamEnd.REFUSED
    assert ended.retry_after == 30 * SECOND
    assert remaining == timedelta(0)


async def test_a_stream_waits_as_long_as_pages_were_asked_to(make_stream: MakeStream) -> None:
    wait = ServerWait()
    wait.note(RequestRejected("503", ErrorResponse(503)), 200 * MILLISECOND, "503")
    asked = asyncio.get_running_loop().time()
    async with EventStreamServer(holds(SYNCED)) as server:
        await follow(make_stream(server, wait=wait), until=lambda item: isinstance(item, Synced))

    assert server.times[0] - asked >= 0.19


async def test_after_a_stream_that_lasted_the_delays_begin_anew(make_stream: MakeStream) -> None:
    backoff = Backoff(initial=MILLISECOND, maximum=10 * SECOND, factor=10, jitter=0)
    async with EventStreamServer(sends(SYNCED)) as server:
        stream = make_stream(server, resuming=backoff, stable_after=timedelta(0))
        items = await follow(stream, until=nth(4, Disconnected))

    assert [item.retry_after for item in items if isinstance(item, Disconnected)] == [MILLISECOND] * 4


async def test_a_refused_token_needs_an_operator(make_stream: MakeStream) -> None:
    async with EventStreamServer(responds(401)) as server:
        items = await follow(make_stream(server), until=is_disconnected)

    (ended,) = items
    assert isinstance(ended, Disconnected)
    assert (ended.reason, ended.needs_operator) == (StreamEnd.REFUSED, True)
    assert "s3cret" not in ended.problem


async def test_resources_that_are_not_selected_are_removed(make_stream: MakeStream) -> None:
    other = event("changed", resource("one", labels={"region": "eu"}))
    async with EventStreamServer(holds(other)) as server:
        stream = make_stream(server, selector=Selector((equality("region", "us"),)))
        items = await follow(stream, until=lambda item: isinstance(item, Removed))

    assert items[-1] == Removed("one")


@pytest.mark.parametrize("bad", [event("changed", {"id": 3}), event("removed", []), event("changed", None)])
async def test_an_item_that_cannot_be_read_does_not_stop_the_others(make_stream: MakeStream, bad: bytes) -> None:
    async with EventStreamServer(holds(bad + event("changed", resource("two")))) as server:
        items = await follow(make_stream(server), until=lambda item: isinstance(item, Changed))

    assert [type(item) for item in items] == [Connected, Unreadable, Changed]


async def test_an_endless_event_ends_the_connection(make_stream: MakeStream) -> None:
    async with EventStreamServer(holds(SYNCED, b"data: " + b"x" * (17 * 1024 * 1024))) as server:
        items = await follow(make_stream(server), until=is_disconnected)

    assert ends(items) == [StreamEnd.INVALID]

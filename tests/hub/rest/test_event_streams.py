"""The events of a hub as a stream for users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import cast

import pytest

from sentinel.hub import event_streams
from sentinel.ports.hub_store import HubEventType, HubTransaction
from sentinel.web.credential import NO_TOKEN, Credential
from sentinel.web.problem import Problem
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_ROUTE, RestHub
from tests.support.fleet.event_stream import EventParser, ServerEvent
from tests.support.fleet.store_records import MOMENT
from tests.support.hub.store_records import appending, instance


class Reader:
    """Reads a stream."""

    def __init__(self, content: AsyncGenerator[bytes, None]) -> None:
        self._content = content
        self.parser = EventParser()
        self._events: list[ServerEvent] = []

    async def next(self) -> ServerEvent:
        async with asyncio.timeout(60):
            while not self._events:
                self._events += self.parser.feed(await anext(self._content))
        return self._events.pop(0)


async def opened(
    hub: RestHub, last_event_id: str | None = None, credential: Credential = NO_TOKEN
) -> AsyncGenerator[bytes, None]:
    stream = await hub.streams.open(last_event_id=last_event_id, credential=credential)
    assert stream.content_type == "text/event-stream"
    return cast("AsyncGenerator[bytes, None]", stream.content)


@pytest.fixture
async def following(hub: RestHub) -> RestHub:
    """A hub that has begun to follow its log."""
    await hub.feed.read()
    return hub


async def test_a_stream_begins_now(following: RestHub) -> None:
    hub = following
    await hub.push("old", VALID)
    async with aclosing(await opened(hub)) as content:
        reader = Reader(content)

        await hub.push("edge", VALID)
        await hub.feed.read()
        event = await reader.next()

    assert (event.type, event.data["config_id"], event.data["version"]) == ("config.version", "edge", 1)
    assert "content" not in event.data


async def test_a_stream_goes_on_after_an_event(following: RestHub) -> None:
    hub = following
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)
    await hub.feed.read()
    first, second = await hub.events()

    async with aclosing(await opened(hub, str(first.number))) as content:
        event = await Reader(content).next()

    assert (event.id, event.data["version"]) == (str(second.number), 2)


async def test_a_change_of_state_is_told(following: RestHub) -> None:
    hub = following
    await hub.add(instance("edge-1"))
    async with aclosing(await opened(hub)) as content:
        await hub.call("POST", "instances/edge-1/drain", {"reason": "moved"})
        await hub.feed.read()
        event = await Reader(content).next()

    assert (event.type, event.data["id"], event.data["state"]) == ("instance.state", "edge-1", "draining")


async def test_what_is_between_hubs_is_not_told(following: RestHub) -> None:
    hub = following

    def internal(transaction: HubTransaction) -> None:
        transaction.append_event(HubEventType.INSTANCE_CHANGED, "edge-1", b"", MOMENT)

    async with aclosing(await opened(hub)) as content:
        await hub.store.transact(internal)
        await hub.store.transact(appending("edge-2"))
        await hub.feed.read()
        event = await Reader(content).next()

    assert event.id == "2"


async def test_a_slow_reader_reads_the_log_itself(following: RestHub) -> None:
    hub = following
    count = event_streams._MAX_RECENT + 10
    async with aclosing(await opened(hub, "0")) as content:
        reader = Reader(content)
        await hub.store.transact(appending(*(str(number) for number in range(count))))
        await hub.feed.read()

        ids = [int((await reader.next()).id) for _ in range(count)]

    assert ids == list(range(1, count + 1))


async def test_a_stream_that_lost_its_place_ends(following: RestHub) -> None:
    hub = following
    async with aclosing(await opened(hub)) as content:
        await anext(content)
        await hub.store.transact(appending("a", "b"))
        await hub.store.transact(appending("c", time=MOMENT + timedelta(hours=1)))
        await hub.store.expire_events(MOMENT + timedelta(minutes=1), limit=10)
        await hub.streams.resync()

        rest = [chunk async for chunk in content]

    assert rest == []


@pytest.mark.parametrize("event_id", ["x", "-1", "1.5", "99", "9" * 30, "0"])
async def test_an_id_to_which_nothing_leads_is_gone(hub: RestHub, event_id: str) -> None:
    await hub.store.transact(appending("a", "b"))
    await hub.store.transact(appending("c", time=MOMENT + timedelta(hours=1)))
    await hub.store.expire_events(MOMENT + timedelta(minutes=1), limit=10)

    with pytest.raises(Problem) as raised:
        await opened(hub, event_id)

    assert raised.value.status == 410


async def test_an_idle_stream_gets_comments_with_its_place(following: RestHub) -> None:
    hub = following
    await hub.store.transact(appending("a"))
    await hub.feed.read()
    async with aclosing(await opened(hub)) as content:
        first = await anext(content)
        waiting = asyncio.create_task(anext(content))
        await hub.clock.advance(timedelta(seconds=10))
        await hub.streams.resync()  # wakes the stream, which looks at the clock
        second = await waiting

    assert (first, second) == (b":\n\n", b":\nid: 1\n\n")


async def test_a_stream_ends_with_its_token(following: RestHub) -> None:
    class EndedCredential(Credential):
        async def is_valid(self) -> bool:
            return False

    hub = following
    ended = EndedCredential.__new__(EndedCredential)
    async with aclosing(await opened(hub, credential=ended)) as content:
        await anext(content)
        rest = [chunk async for chunk in content]

    assert rest == []

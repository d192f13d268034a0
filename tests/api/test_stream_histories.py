"""Whatever is written and however often a client is disconnected, it ends with what a list returns."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.event_stream import EventStream, Mirror, StreamEnded, watching

SELECTOR = "tier=gold"

actions = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("label"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("change"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("read"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("disconnect"), st.just(0), st.booleans()),
        st.tuples(st.just("expire"), st.just(0), st.booleans()),
    ),
    max_size=25,
)


class History:
    """Writes, and one client that follows a stream."""

    def __init__(self, fleet: ApiClient, labels: str) -> None:
        self.fleet = fleet
        self.labels = labels
        self.mirror = Mirror()
        self.writes = 0

    async def run(self, history: list[tuple[str, int, bool]]) -> None:
        """Perform the actions. The client reads only where the history says so."""
        pending = list(history)
        while pending:
            async with watching(self.fleet.app, "manifests", after=self.mirror.last_id, **self._query) as stream:
                if stream.status == 410:
                    self.mirror.restart()
                    continue
                with suppress(StreamEnded):  # changes have expired that the server had not read yet
                    while pending:
                        name, value, flag = pending.pop(0)
                        if name == "disconnect":
                            break
                        if name == "read":
                            for _ in range(value):
                                await self._read_one(stream)
                        else:
                            await self._write(name, f"m-{value}", is_gold=flag)

    async def finish(self) -> None:
        """Read until the client knows of a last write: by then it has received everything before it."""
        await self._write("create", "last", is_gold=True)
        while "last" not in self.mirror.resources or not self.mirror.is_synced:
            async with watching(self.fleet.app, "manifests", after=self.mirror.last_id, **self._query) as stream:
                if stream.status == 410:
                    self.mirror.restart()
                    continue
                with suppress(StreamEnded):
                    while "last" not in self.mirror.resources or not self.mirror.is_synced:
                        self.mirror.apply(await stream.next())

    async def listed(self) -> dict[str, Any]:
        return {item["id"]: item for item in (await self.fleet.get("manifests", **self._query))["items"]}

    async def _read_one(self, stream: EventStream) -> None:
        try:
            async with asyncio.timeout(0.05):
                self.mirror.apply(await stream.next())
        except TimeoutError:
            pass

    async def _write(self, name: str, resource: str, *, is_gold: bool) -> None:
        self.writes += 1
        labels, path = {"tier": "gold" if is_gold else "lead"}, f"manifests/{resource}"
        match name:
            case "create":
                await self.fleet.call("POST", "manifests", {"id": resource, "name": resource, "labels": labels})
            case "label":
                await self.fleet.call("PATCH", path, {"labels": labels})
            case "change":
                await self.fleet.call("PATCH", path, {"spec": {"n": self.writes}})
            case "delete":
                await self.fleet.call("DELETE", path)
            case "expire":
                await self.fleet.backend.changes.expire(await self.fleet.later(3600), limit=100)

    @property
    def _query(self) -> dict[str, str]:
        return {"labels": self.labels, "fields": "spec,labels"}


@settings(max_examples=examples(60))
@given(actions, st.sampled_from(["", SELECTOR]))
async def test_a_client_that_follows_the_protocol_ends_with_the_list(
    history: list[tuple[str, int, bool]], labels: str
) -> None:
    async with ApiClient() as fleet:
        client = History(fleet, labels)

        await client.run(history)
        await client.finish()

        assert client.mirror.resources == await client.listed()

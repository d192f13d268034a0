"""Streams of `sentinel api` processes that are killed, and of two on one PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.event_stream import EventParser, Mirror
from tests.support.fleet.http_client import ROOT, FleetHttp
from tests.support.processes.service import ApiProcess

KINDS = ({"plural": "clusters", "kind": "Cluster"},)
ROUNDS = 2


@asynccontextmanager
async def serving(url: str, directory: Path) -> AsyncIterator[tuple[ApiProcess, FleetHttp]]:
    async with ApiProcess(url, kinds=KINDS, directory=directory) as api, FleetHttp(await api.url()) as fleet:
        yield api, fleet


class Follower:
    """A client that follows the clusters of a server until its connection is lost, and goes on at the next."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self._arrived = asyncio.Event()

    async def follow(self, url: str) -> None:
        """Follow until the connection is lost."""
        headers = {"Last-Event-ID": self.mirror.last_id} if self.mirror.last_id else {}
        parser = EventParser()
        timeout = aiohttp.ClientTimeout(sock_read=30)
        with suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{url}{ROOT}/clusters", params={"watch": "true"}, headers=headers) as response,
            ):
                assert response.status == 200, await response.text()
                async for chunk in response.content.iter_any():
                    for event in parser.feed(chunk):
                        self.mirror.apply(event)
                    self._arrived.set()

    async def wait_for(self, count: int) -> None:
        """Wait until the client knows this many clusters."""
        async with asyncio.timeout(90):
            while len(self.mirror.resources) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def wait_for_state(self, fleet: FleetHttp) -> None:
        """Wait until the client knows exactly what a list returns."""
        listed = {item["id"]: item async for item in fleet.walk("clusters", size="100")}
        async with asyncio.timeout(90):
            while self.mirror.resources != listed:
                self._arrived.clear()
                await self._arrived.wait()


@pytest.mark.parametrize("kind", list(DatabaseKind))
async def test_a_client_goes_on_at_a_new_server_after_kill_9(
    kind: DatabaseKind, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = empty_database(kind, request, tmp_path)
    follower, created = Follower(), 0

    for _ in range(ROUNDS):
        async with serving(url, tmp_path) as (api, fleet), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follower.follow(await api.url()))
            for _ in range(20):
                created += 1
                assert (await fleet.call("POST", "clusters", {"name": f"c-{created}"})).status == 201
            await follower.wait_for(created - 10)
            api.send_signal(signal.SIGKILL)
            await following
            # Written while the client is away.
        async with serving(url, tmp_path) as (api, fleet):
            created += 1
            cluster = (await fleet.call("POST", "clusters", {"name": f"c-{created}"})).json
            await fleet.call("PATCH", f"clusters/{cluster['id']}", {"labels": {"a": "b"}})
            assert await api.stop() == 0

    async with serving(url, tmp_path) as (api, fleet), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follower.follow(await api.url()))
        await follower.wait_for_state(fleet)
        following.cancel()

    assert len(follower.mirror.resources) == created


async def test_two_servers_on_one_postgresql_tell_each_others_changes(
    fresh_postgresql_database: str, tmp_path: Path
) -> None:
    url = fresh_postgresql_database
    async with (
        serving(url, tmp_path) as (first, first_fleet),
        serving(url, tmp_path) as (second, second_fleet),
        asyncio.TaskGroup() as tasks,
    ):
        followers = {first: Follower(), second: Follower()}
        following = [tasks.create_task(each.follow(await api.url())) for api, each in followers.items()]

        for number in range(10):
            for fleet in (first_fleet, second_fleet):
                reply = await fleet.call("POST", "clusters", {"name": f"c-{number}-{fleet is first_fleet}"})
                assert reply.status == 201

        for each in followers.values():
            await each.wait_for_state(first_fleet)
        # The second goes on where the first has left off.
        moved = Follower()
        moved.mirror.resources = dict(followers[first].mirror.resources)
        moved.mirror.last_id = followers[first].mirror.last_id
        following.append(tasks.create_task(moved.follow(await second.url())))
        await first_fleet.call("POST", "clusters", {"name": "last"})
        await moved.wait_for_state(first_fleet)
        for task in following:
            task.cancel()


async def test_a_client_that_does_not_read_is_cut_off_and_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'fleet.db'}"
    padding = "x" * 500_000
    async with serving(url, tmp_path) as (api, fleet), asyncio.timeout(100):
        for number in range(60):
            reply = await fleet.call("POST", "clusters", {"name": f"c-{number}", "spec": {"padding": padding}})
            assert reply.status == 201
        address = (await api.url()).removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(address[0], int(address[1]), limit=1024)
        writer.write(f"GET {ROOT}/clusters?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await reader.readline()

        await api.until_event("http.stalled", timeout=60)

        metrics = (await fleet.call("GET", "/metrics")).content.decode()
        assert 'hyperfleet_api_streams_cut_off_total{kind="Cluster"} 1.0' in metrics
        assert 'hyperfleet_api_streams{kind="Cluster"} 0.0' in metrics
        writer.transport.abort()
        follower = Follower()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follower.follow(await api.url()))
            await follower.wait_for_state(fleet)
            following.cancel()

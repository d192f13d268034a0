"""`sentinel api` killed or stopped while clients write: confirmed writes are kept, others can be retried."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.fleet_writers import Writers
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.concurrent_clients import KINDS
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess

ROUNDS = 8
WRITERS = 8


@pytest.fixture(params=list(DatabaseKind))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, request, tmp_path)


@asynccontextmanager
async def serving(url: str, directory: Path) -> AsyncIterator[tuple[ApiProcess, FleetHttp]]:
    async with ApiProcess(url, kinds=KINDS, directory=directory) as api, FleetHttp(await api.url()) as fleet:
        yield api, fleet


async def test_a_server_killed_repeatedly_loses_nothing_it_responded_to(database_url: str, tmp_path: Path) -> None:
    writers = Writers(WRITERS)

    for number in range(ROUNDS):
        async with serving(database_url, tmp_path) as (api, fleet):
            # A retried creation succeeds whether or not the cluster was created before the crash.
            for cluster in writers.clusters:
                if not cluster.id:
                    await cluster.create(fleet)
            await asyncio.gather(*(cluster.verify(fleet) for cluster in writers.clusters))

            await writers.run(fleet, responses=30 + 7 * number, then=lambda: api.send_signal(signal.SIGKILL))

            assert await api.exit_code() == -signal.SIGKILL

    async with serving(database_url, tmp_path) as (api, fleet):
        replays = [await cluster.create(fleet) for cluster in writers.clusters]
        await asyncio.gather(*(cluster.verify(fleet) for cluster in writers.clusters))
        names = [item["name"] async for item in fleet.walk("clusters", size="100")]
        total = (await fleet.get("clusters", size="1"))["total"]
        metrics = await fleet.call("GET", "/metrics")
        assert await api.stop() == 0

    assert sorted(names) == sorted(cluster.name for cluster in writers.clusters)
    assert total == len(names)
    assert f'hyperfleet_api_resources{{kind="Cluster",ready="false"}} {float(total)}' in metrics.content.decode()
    assert sum(replays) >= len(replays) - WRITERS


async def test_sigterm_completes_requests_in_flight_and_exits_0(database_url: str, tmp_path: Path) -> None:
    confirmed: set[str] = set()

    async def write(fleet: FleetHttp, writer: int) -> None:
        for number in range(1000):
            name = f"c-{writer}-{number}"
            try:
                reply = await fleet.call("POST", "clusters", {"name": name}, {"X-Request-Id": name})
            except aiohttp.ClientError:
                return
            assert reply.status == 201, reply
            confirmed.add(name)
            if len(confirmed) == 50:
                api.send_signal(signal.SIGTERM)
        raise AssertionError("the server did not stop")

    async with serving(database_url, tmp_path) as (api, fleet):
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            for writer in range(WRITERS):
                group.create_task(write(fleet, writer))
        code = await api.exit_code()
    requests = [line for line in api.lines if line.get("event") == "http.request"]

    assert code == 0
    assert {line["status"] for line in requests} == {201}
    assert {line["request_id"] for line in requests} == confirmed
    assert len(confirmed) >= 50

"""Concurrent writers of a fleet API that runs as a process, on both databases: no write is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.concurrent_clients import KINDS, REQUIRED, SentRequests, clients, run_concurrently, verify
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess

SQLITE, POSTGRESQL = DatabaseKind.SQLITE, DatabaseKind.POSTGRESQL
DEPLOYMENTS = [
    pytest.param(SQLITE, 1, id="sqlite"),
    pytest.param(POSTGRESQL, 1, id="postgresql"),
    pytest.param(POSTGRESQL, 2, id="two servers on postgresql"),
]


@pytest.fixture
async def fleet(
    kind: DatabaseKind, servers: int, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[FleetHttp]:
    """A client of all servers of one fleet. Afterwards, no server may have logged an error."""
    url = empty_database(kind, request, tmp_path)
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(ApiProcess(url, kinds=KINDS, directory=tmp_path))
            for _ in range(servers)
        ]
        urls = [await process.url() for process in processes]
        yield await stack.enter_async_context(FleetHttp(*urls))
        codes = [await process.stop() for process in processes]
        lines = [line for process in processes for line in process.lines]

    assert codes == [0] * servers
    assert [line for line in lines if line.get("level") in ("warning", "error")] == []
    assert [line for line in lines if line.get("status", 0) >= 500] == []


@pytest.mark.parametrize(("kind", "servers"), DEPLOYMENTS)
async def test_fifty_writers_of_one_resource_are_serialized(fleet: FleetHttp) -> None:
    resource = await fleet.create("busy")
    sent = SentRequests(f"clusters/{resource['id']}")

    await run_concurrently(clients(fleet, sent, count=50, rounds=5))

    await verify(fleet, sent)
    await fleet.report(sent.path, *REQUIRED, generation=sent.generation)
    reconciled = await fleet.get(sent.path)
    assert reconciled["status"]["phase"] == "Ready"
    audit = await fleet.get("/api/v1/audit", resource_id=resource["id"], size="1000")
    actions = [entry["action"] for entry in audit["items"]]
    assert actions.count("patch") == len(sent.versions)
    assert actions.count("report") == sent.stored + len(REQUIRED)


@pytest.mark.parametrize(("kind", "servers"), DEPLOYMENTS)
async def test_writers_of_different_resources_do_not_affect_each_other(fleet: FleetHttp) -> None:
    resources = await asyncio.gather(*(fleet.create(f"cluster-{n}") for n in range(100)))
    per_resource = [SentRequests(f"clusters/{resource['id']}") for resource in resources]

    await run_concurrently([work for sent in per_resource for work in clients(fleet, sent, count=20, rounds=1)])

    await asyncio.gather(*(verify(fleet, sent) for sent in per_resource))

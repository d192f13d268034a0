"""A server of components that the fleet API knows nothing about, and one that serves both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sentinel.api.kinds import DEFAULT
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.wiring import server
from sentinel.cli.wiring.api import build_api
from sentinel.cli.wiring.serve import ServiceContext
from sentinel.cli.wiring.server import BuiltComponent, BuiltServer
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.health import Health
from sentinel.runtime.lifecycle.part import Part, opened
from sentinel.runtime.lifecycle.runner import run
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.metrics import Metrics
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.server import RetentionSettings, ServerSettings
from sentinel.runtime.telemetry import get_logger
from sentinel.web.app import BadRoutes
from sentinel.web.audit import Auditor
from sentinel.web.openapi import Info
from tests.cli.wiring import toy_component
from tests.cli.wiring.toy_component import MIGRATED, build_notes

HERE = Path(__file__).parent
LOG = get_logger("test")
Build = Callable[[SqlDatabase, ServiceContext], Sequence[BuiltComponent]]


def notes_alone(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
    return [build_notes(database, auditor=Auditor(), clock=context.clock)]


def notes_and_fleet(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
    auditor = Auditor()
    api = build_api(FleetApiSettings(), kinds=DEFAULT, database=database, auditor=auditor, clock=context.clock)
    return [api, build_notes(database, auditor=auditor, clock=context.clock)]


def built(url: str, build: Build) -> tuple[BuiltServer, ServiceContext]:
    settings = ServerSettings(database_url=Secret(url), insecure=True)
    context = ServiceContext(
        log=LOG, redactor=Redactor(), health=Health(), metrics=Metrics(component="test"), clock=SystemClock()
    )
    database = server.build_database(settings, history=MIGRATED)
    return (
        server.build_server(
            build(database, context),
            database=database,
            settings=settings,
            retention=RetentionSettings(),
            address=Address("127.0.0.1", 0),
            info=Info(title="Notes", version="1"),
            metrics_prefix="notes_",
            context=context,
            log=LOG,
        ),
        context,
    )


@asynccontextmanager
async def serving(url: str, build: Build = notes_alone) -> AsyncIterator[aiohttp.ClientSession]:
    """The server in a lifecycle of its own, and a client of it."""
    server, context = built(url, build)
    stopping, is_serving = Stopping(), asyncio.Event()

    async def announce(stopping: Stopping) -> None:
        is_serving.set()
        await stopping.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        service = group.create_task(
            run(
                parts=[*server.factories, server.listener.part, lambda: Part(name="last", loops=(announce,))],
                shared=[opened("database", server.database)],
                log=LOG,
                health=context.health,
                metrics=context.metrics,
                stopping=stopping,
                signals=(),
            )
        )
        await is_serving.wait()
        async with aiohttp.ClientSession(f"http://{server.listener.address}") as session:
            yield session
        stopping.request()
        assert await service == 0


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/notes.db"
    found: str = request.getfixturevalue("fresh_postgresql_database")
    return found


async def test_a_second_component_is_routes_a_service_and_a_table(url: str) -> None:
    note = {"name": "one", "text": "remember"}
    async with serving(url) as client:
        written = await client.post("/api/v1/notes", json=note, headers={"Idempotency-Key": "k"})
        repeated = await client.post("/api/v1/notes", json=note, headers={"Idempotency-Key": "k"})
        reused = await client.post("/api/v1/notes", json={**note, "text": "x"}, headers={"Idempotency-Key": "k"})
        taken = await client.post("/api/v1/notes", json=note)
        found = await client.get("/api/v1/notes/one")
        missing = await client.get("/api/v1/notes/two")

        assert [each.status for each in (written, repeated, reused, taken)] == [201, 201, 422, 409]
        assert await found.json() == await repeated.json() == note
        assert missing.status == 404
        (entry,) = (await _json(client, "/api/v1/audit"))["items"]
        assert (entry["actor"], entry["action"], entry["kind"]) == ("anonymous", "create", "note")
        assert (entry["resource_id"], entry["role"], entry["address"]) == ("one", "admin", "127.0.0.1")


async def test_it_has_a_document_metrics_and_probes(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/notes.db") as client:
        document = await _json(client, "/openapi.json")
        ready = await _json(client, "/readyz")
        metrics = await (await client.get("/metrics")).text()

    assert sorted(document["paths"]) == ["/api/v1/audit", "/api/v1/notes", "/api/v1/notes/{name}"]
    assert document["paths"]["/api/v1/notes"]["post"]["x-roles"] == ["operator"]
    assert ready["checks"]["notes.database"]["status"] == "ok"
    assert 'notes_http_requests_total{method="GET",route="/openapi.json",status="200"} 1.0' in metrics


async def test_two_components_share_listener_database_audit_and_document(url: str) -> None:
    async with serving(url, notes_and_fleet) as client:
        note = await client.post("/api/v1/notes", json={"name": "one", "text": "remember"})
        cluster = await client.post("/api/hyperfleet/v1/clusters", json={"name": "one"})
        document = await _json(client, "/openapi.json")
        audit = await _json(client, "/api/v1/audit")

    assert (note.status, cluster.status) == (201, 201)
    assert {"/api/v1/notes", "/api/hyperfleet/v1/clusters", "/api/v1/audit"} <= document["paths"].keys()
    assert [entry["kind"] for entry in audit["items"]] == ["Cluster", "note"]


def test_two_components_with_the_same_routes_are_refused(tmp_path: Path) -> None:
    def twice(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
        notes = build_notes(database, auditor=Auditor(), clock=context.clock)
        other = msgspec.structs.replace(notes.web, permissions=type(notes.web.permissions)())
        return [notes, msgspec.structs.replace(notes, web=other)]

    with pytest.raises(BadRoutes, match="POST /api/v1/notes: declared twice"):
        built(f"sqlite:///{tmp_path}/notes.db", twice)


def test_the_component_is_small_and_knows_nothing_of_the_fleet() -> None:
    sources = [Path(toy_component.__file__ or ""), *(HERE / "toy_migrations").glob("*.py")]
    lines = [line for source in sources for line in source.read_text().splitlines()]

    assert len(lines) < 150
    assert not [line for line in lines if "import" in line and ("sentinel.api" in line or "fleet" in line)]


async def _json(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as response:
        return await response.json()

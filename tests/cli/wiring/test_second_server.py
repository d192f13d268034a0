"""A server for a second component, and one for both components."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sentinel.api.kinds import DEFAULT
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.wiring import server
from sentinel.cli.wiring.api import build_api
from sentinel.cli.wiring.serve import Assembly, ServiceContext, serve
from sentinel.cli.wiring.server import BuiltComponent, BuiltServer
from sentinel.core.access import Identity, Permissions, Role
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import LogLevel, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.secrets import Redactor, Secret
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.server import RetentionSettings, ServerSettings
from sentinel.runtime.tracing import NO_TRACING
from sentinel.testing.identities import MemoryIdentities
from sentinel.web.app import BadRoutes
from sentinel.web.audit import Auditor
from sentinel.web.openapi import Info
from tests.cli.wiring import toy_component
from tests.cli.wiring.toy_component import MIGRATED, build_notes

HERE = Path(__file__).parent
LOG = get_logger("test")
TIMEOUT = 30
NOTE = {"name": "one", "text": "remember"}

Build = Callable[[SqlDatabase, ServiceContext], Sequence[BuiltComponent]]
Configure = Callable[[str, Path], ServerSettings]
ClientTest = Callable[[aiohttp.ClientSession], Coroutine[Any, Any, None]]


def notes_only(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
    return [build_notes(database, auditor=Auditor(), clock=context.clock)]


def notes_and_fleet(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
    auditor = Auditor()
    api = build_api(FleetApiSettings(), kinds=DEFAULT, database=database, auditor=auditor, clock=context.clock)
    return [api, build_notes(database, auditor=auditor, clock=context.clock)]


def built(settings: ServerSettings, build: Build, context: ServiceContext) -> BuiltServer:
    database = server.build_database(settings, history=MIGRATED)
    guest = Identity("guest", Role.VIEWER)
    return server.build_server(
        build(database, context),
        database=database,
        settings=settings,
        retention=RetentionSettings(),
        address=Address("127.0.0.1", 0),
        info=Info(title="Notes", version="1"),
        metrics_prefix="notes_",
        context=context,
        log=LOG,
        auditor=Auditor(),
        identities=[MemoryIdentities({"guest-token": guest})],
    )


def run_server(test: ClientTest, settings: ServerSettings, build: Build) -> None:
    """Run the server as a command does, until the test has ended."""
    stopping = Stopping()
    failures: list[BaseException] = []

    def assemble(context: ServiceContext) -> Assembly:
        server = built(settings, build, context)

        async def client(own: Stopping) -> None:
            try:
                async with (
                    asyncio.timeout(TIMEOUT),
                    aiohttp.ClientSession(f"http://{server.listener.address}") as session,
                ):
                    await test(session)
            except BaseException as error:
                failures.append(error)
                raise
            finally:
                stopping.request()

        assembly = server.assembly()
        parts = [*assembly.parts, lambda: Part(name="client", loops=(client,), is_finite=True)]
        return msgspec.structs.replace(assembly, parts=parts, stopping=stopping)

    code = serve(assemble, name="notes", component="notes", log=LogSettings(level=LogLevel.WARNING))
    for failure in failures:
        raise failure
    assert code == 0


def insecure(url: str, directory: Path) -> ServerSettings:
    return ServerSettings(database_url=Secret(url), insecure=True)


def with_tokens(url: str, directory: Path) -> ServerSettings:
    digest = hashlib.sha256(b"writer-token").hexdigest()
    tokens = directory / "tokens.yaml"
    tokens.write_text(f"tokens:\n  - {{name: writer, role: operator, sha256: {digest}}}\n")
    return ServerSettings(database_url=Secret(url), tokens_file=tokens)


def on_server(
    build: Build = notes_only, configure: Configure = insecure
) -> Callable[[ClientTest], Callable[[str, Path], None]]:
    """Decorate a test: it gets a client of the server, on the event loop of the service."""

    def decorate(test: ClientTest) -> Callable[[str, Path], None]:
        def on_its_loop(url: str, tmp_path: Path) -> None:
            run_server(test, configure(url, tmp_path), build)

        return on_its_loop

    return decorate


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/notes.db"
    found: str = request.getfixturevalue("fresh_postgresql_database")
    return found


@on_server()
async def test_a_second_component_is_routes_a_service_and_a_table(client: aiohttp.ClientSession) -> None:
    key = {"Idempotency-Key": "k"}
    written = await client.post("/api/v1/notes", json=NOTE, headers=key)
    repeated = await client.post("/api/v1/notes", json=NOTE, headers=key)
    reused = await client.post("/api/v1/notes", json={**NOTE, "text": "x"}, headers=key)
    taken = await client.post("/api/v1/notes", json=NOTE)
    found = await client.get("/api/v1/notes/one")
    missing = await client.get("/api/v1/notes/two")

    assert [each.status for each in (written, repeated, reused, taken)] == [201, 201, 422, 409]
    assert await found.json() == await repeated.json() == NOTE
    assert missing.status == 404
    (entry,) = (await _json(client, "/api/v1/audit"))["items"]
    assert (entry["actor"], entry["action"], entry["kind"]) == ("anonymous", "create", "note")
    assert (entry["resource_id"], entry["role"], entry["address"]) == ("one", "admin", "127.0.0.1")


@on_server(configure=with_tokens)
async def test_its_permissions_apply_to_tokens_of_every_source(client: aiohttp.ClientSession) -> None:
    guest = {"Authorization": "Bearer guest-token"}
    writer = {"Authorization": "Bearer writer-token"}
    forbidden = await client.post("/api/v1/notes", json=NOTE, headers=guest)
    written = await client.post("/api/v1/notes", json=NOTE, headers=writer)
    found = await client.get("/api/v1/notes/one", headers=guest)
    audit = await client.get("/api/v1/audit", headers=writer)

    assert [each.status for each in (forbidden, written, found, audit)] == [403, 201, 200, 403]
    assert (await forbidden.json())["detail"] == "the role viewer of guest may not write"
    assert (await client.get("/api/v1/notes/one")).status == 401


@on_server()
async def test_it_has_a_document_metrics_and_probes(client: aiohttp.ClientSession) -> None:
    document = await _json(client, "/openapi.json")
    ready = await _json(client, "/readyz")
    metrics = await (await client.get("/metrics")).text()

    shared = {"audit", "auth", "tokens", "users"}
    own = [path for path in sorted(document["paths"]) if path.split("/")[3] not in shared]
    assert own == ["/api/v1/notes", "/api/v1/notes/{name}"]
    assert document["paths"]["/api/v1/notes"]["post"]["x-roles"] == ["operator"]
    assert ready["checks"]["notes.database"]["status"] == "ok"
    assert 'notes_http_requests_total{method="GET",route="/openapi.json",status="200"} 1.0' in metrics


@on_server(notes_and_fleet)
async def test_two_components_share_listener_database_audit_and_document(client: aiohttp.ClientSession) -> None:
    note = await client.post("/api/v1/notes", json=NOTE)
    cluster = await client.post("/api/hyperfleet/v1/clusters", json={"name": "one"})
    document = await _json(client, "/openapi.json")
    audit = await _json(client, "/api/v1/audit")

    assert (note.status, cluster.status) == (201, 201)
    assert {"/api/v1/notes", "/api/hyperfleet/v1/clusters", "/api/v1/audit"} <= document["paths"].keys()
    assert [entry["kind"] for entry in audit["items"]] == ["Cluster", "note"]


def test_two_components_with_the_same_routes_are_rejected(tmp_path: Path) -> None:
    context = ServiceContext(
        log=LOG,
        redactor=Redactor(),
        health=Health(),
        metrics=Metrics(component="test"),
        clock=SystemClock(),
        tracer=NO_TRACING,
    )

    def twice(database: SqlDatabase, context: ServiceContext) -> Sequence[BuiltComponent]:
        (notes,) = notes_only(database, context)
        other = msgspec.structs.replace(notes.web, permissions=Permissions())
        return [notes, msgspec.structs.replace(notes, web=other)]

    with pytest.raises(BadRoutes, match="POST /api/v1/notes: declared twice"):
        built(insecure(f"sqlite:///{tmp_path}/notes.db", tmp_path), twice, context)


def test_the_component_is_small_and_independent_of_the_fleet() -> None:
    sources = [Path(toy_component.__file__ or ""), *(HERE / "toy_migrations").glob("*.py")]
    lines = [line for source in sources for line in source.read_text().splitlines()]

    assert len(lines) < 150
    assert not [line for line in lines if "import" in line and ("sentinel.api" in line or "fleet" in line)]


async def _json(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as response:
        return await response.json()

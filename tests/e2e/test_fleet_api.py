"""`sentinel api` as a process: startup, authorization, observability, failures and maintenance."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.databases.postgresql import database
from tests.support.fleet.concurrent_clients import KINDS, REQUIRED
from tests.support.fleet.http_client import FleetHttp, report
from tests.support.processes.service import ApiProcess, ServiceProcess, run_command
from tools.services.postgresql import PostgreSQLServer

DISCARD_REASONS = ("future_generation", "stale_generation", "stale_time", "unknown")


async def new_token(tokens: Path, name: str, role: str, *more: str) -> str:
    created = await run_command("token", "new", "--name", name, "--role", role, "--tokens-file", tokens, *more)
    assert created.code == 0, created.stderr
    return created.stdout.strip()


def file_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'fleet.db'}"


async def metrics(fleet: FleetHttp) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the value of every series, by name and labels."""
    text = (await fleet.call("GET", "/metrics")).content.decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def series(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"hyperfleet_api_{name}", frozenset(labels.items())


async def count_rows(fleet: FleetHttp, path: str) -> Mapping[str, object]:
    """Return the rows that retention deletes: two numbers, and the generations in the history."""
    history = await fleet.get(f"{path}/history")
    return {
        "audit": len((await fleet.get("/api/v1/audit"))["items"]),
        "discarded": (await fleet.get(f"{path}/statuses/discarded"))["total"],
        "generations": [each["generation"] for each in history["items"]],
    }


# --- Startup ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--insecure", "--listen", "0.0.0.0:0"], ["insecure: expected a loopback address", "0.0.0.0:0"]),
        (["--insecure", "--listen", ":0"], ["insecure: expected a loopback address"]),
        ([], ["--tokens-file", "--jwt-key-file", "--insecure"]),
        (["--insecure", "--listen", "nowhere"], ["--listen: expected HOST:PORT", "nowhere"]),
        (
            ["--insecure", "--database-url", "mysql://root:hidden@db/fleet"],
            ["--database-url: expected sqlite:///"],
        ),
        (["--insecure", "--database-url", "fleet.db"], ["--database-url: expected sqlite:///"]),
        (["--tokens-file", "missing.yaml"], ["missing.yaml"]),
        (["--jwt-key-file", "missing.pem"], ["missing.pem"]),
        (["--insecure", "--kinds-file", "missing.yaml"], ["missing.yaml"]),
        (["--insecure", "--set", "retention.audit=never"], ["retention.audit: expected a duration"]),
    ],
    ids=lambda value: " ".join(value) or "neither tokens nor insecure" if isinstance(value, list) else None,
)
async def test_invalid_options_exit_2_with_the_reason(
    arguments: Sequence[str], words: Sequence[str], tmp_path: Path
) -> None:
    database_url = () if "--database-url" in arguments else ("--database-url", file_url(tmp_path))

    ended = await run_command("api", *database_url, *arguments)

    assert ended.code == 2, ended.stderr
    assert ended.stdout == ""
    for word in words:
        assert word in ended.stderr
    assert "hidden" not in ended.stderr


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("parent: galaxies", "parent"),
        ("colour: blue", "colour"),
        ("required_adapters: dns", "required_adapters"),
        ("available: self.items.all(i, i.generation == 1)", "available"),
    ],
)
async def test_a_bad_kinds_file_exits_2_with_file_line_and_field(line: str, field: str, tmp_path: Path) -> None:
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text(f"kinds:\n  - plural: clusters\n    kind: Cluster\n    {line}\n")

    ended = await run_command("api", "--insecure", "--database-url", file_url(tmp_path), "--kinds-file", kinds)

    assert ended.code == 2
    assert re.search(rf"^{re.escape(str(kinds))}:4:\d+: kinds\[0\]\.{field}: ", ended.stderr, re.MULTILINE)


async def test_a_kind_is_available_by_the_expression_in_its_file(tmp_path: Path) -> None:
    succeeded = "i.conditions.exists(c, c.type == 'Available' && c.status == 'True')"
    mirrors = {
        "plural": "mirrors",
        "kind": "Mirror",
        "required_adapters": ["europe", "asia", "america"],
        "available": f"self.items.filter(i, {succeeded}).size() >= 2",
    }
    server = ApiProcess(file_url(tmp_path), kinds=[mirrors], directory=tmp_path)
    async with server, FleetHttp(await server.url()) as fleet:
        await fleet.call("POST", "mirrors", {"name": "m", "id": "m"})
        statuses = {"europe": "True", "asia": "False", "america": "True"}

        seen = []
        for adapter, available in statuses.items():
            body = report(adapter, available=available)
            assert (await fleet.call("POST", "mirrors/m/statuses", body)).status == 201
            resource = await fleet.get("mirrors/m")
            seen.append({each["type"]: each["status"] for each in resource["status"]["conditions"]})

    assert [each["Available"] for each in seen] == ["False", "False", "True"]
    assert [each["Ready"] for each in seen] == ["False"] * 3


async def test_kinds_without_required_adapters_are_named_at_the_start(tmp_path: Path) -> None:
    async with ApiProcess(file_url(tmp_path), directory=tmp_path) as process:
        line = await process.until_event("settings.warning")
        await process.url()

    assert line["problem"].startswith("no adapter is required for clusters, nodepools, manifests, workloads (")
    assert len([each for each in process.lines if each.get("event") == "settings.warning"]) == 1


async def test_a_second_server_on_the_same_sqlite_file_is_refused(tmp_path: Path) -> None:
    async with ApiProcess(file_url(tmp_path), directory=tmp_path) as first, FleetHttp(await first.url()) as fleet:
        second = await run_command(
            "api", "--insecure", "--listen", "127.0.0.1:0", "--database-url", file_url(tmp_path)
        )
        created = await fleet.create("one")

    assert second.code == 2, second.stderr
    assert "in use" in second.stderr
    assert str(first.pid) in second.stderr
    assert created["generation"] == 1


# --- Authorization ----------------------------------------------------------------------------------------------


async def test_tokens_from_the_command_line_permit_what_their_roles_do(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    by_role = {
        "viewer": await new_token(tokens, "ann", "viewer"),
        "operator": await new_token(tokens, "ops", "operator"),
        "admin": await new_token(tokens, "root", "admin"),
        "pulse": await new_token(tokens, "pulse", "pulse"),
        "adapter": await new_token(tokens, "dns", "adapter", "--adapter", "dns"),
    }
    arguments = ("--tokens-file", str(tokens))
    async with ApiProcess(file_url(tmp_path), kinds=KINDS, directory=tmp_path, arguments=arguments) as api:
        url = await api.url()
        async with FleetHttp(url, token=by_role["operator"]) as operator:
            resource = await operator.create("one")
        path = f"clusters/{resource['id']}"

        statuses: dict[str, list[int]] = {}
        for role, token in [*by_role.items(), ("none", ""), ("unknown", "snt_" + "A" * 43)]:
            async with FleetHttp(url, token=token) as fleet:
                replies = [
                    await fleet.call("GET", "clusters"),
                    await fleet.call("PATCH", path, {"labels": {}}),
                    await fleet.call("POST", f"{path}/statuses", report("dns")),
                    await fleet.call("POST", f"{path}/statuses", report("validation")),
                    await fleet.call("POST", f"{path}/force-delete", {"reason": "authorization test"}),
                    await fleet.call("GET", "/api/v1/audit"),
                ]
            statuses[role] = [reply.status for reply in replies]
            assert all(reply.code.startswith("HYPERFLEET-AU") for reply in replies if reply.status in (401, 403))

    assert resource["created_by"] == "ops"
    assert statuses == {
        "viewer": [200, 403, 403, 403, 403, 403],
        "operator": [200, 200, 403, 403, 403, 403],
        "admin": [200, 200, 403, 403, 409, 200],
        "pulse": [200, 403, 403, 403, 403, 403],
        "adapter": [200, 403, 201, 403, 403, 403],
        "none": [401] * 6,
        "unknown": [401] * 6,
    }
    assert not any(token in api.stderr.decode() for token in by_role.values())


async def test_the_tokens_file_is_reloaded_when_it_changes(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    first = await new_token(tokens, "ann", "viewer")
    async with ApiProcess(file_url(tmp_path), directory=tmp_path, arguments=("--tokens-file", str(tokens))) as api:
        url = await api.url()
        second = await new_token(tokens, "ben", "viewer")
        async with FleetHttp(url, token=second) as ben, FleetHttp(url, token=first) as ann:
            await ben.until(200, "clusters")
            revoked = await run_command("token", "revoke", "--name", "ann", "--tokens-file", str(tokens))
            await ann.until(401, "clusters")
            after_revocation = await ben.call("GET", "clusters")
            tokens.write_text("tokens: [")
            with_invalid_file: set[int] = set()

            async def keep_requesting() -> None:
                while with_invalid_file <= {200}:
                    with_invalid_file.add((await ben.call("GET", "clusters")).status)

            async with asyncio.TaskGroup() as tasks:
                # The server checks the file only when a request arrives, and logs that it is invalid.
                requesting = tasks.create_task(keep_requesting())
                logged = await api.until_event("tokens.unusable")
                requesting.cancel()

    assert revoked.code == 0
    assert (after_revocation.status, with_invalid_file) == (200, {200})
    assert str(tokens) in logged["problem"]


async def test_json_web_tokens_are_authorized_by_their_claims(tmp_path: Path) -> None:
    key = "the secret of the issuer and of this server"
    key_file = tmp_path / "key"
    key_file.write_text(key)
    expiry = datetime.now(UTC) + timedelta(minutes=5)

    def sign(key: str = key, **claims: object) -> str:
        return jwt.encode({"sub": "dns-bot", "exp": expiry, **claims}, key, algorithm="HS256")

    arguments = ("--jwt-key-file", str(key_file))
    async with ApiProcess(file_url(tmp_path), kinds=KINDS, directory=tmp_path, arguments=arguments) as api:
        url = await api.url()
        async with FleetHttp(url, token=sign(role="operator", sub="ops")) as operator:
            path = f"clusters/{(await operator.create('one'))['id']}"
        statuses = []
        for token in (
            sign(role="adapter", adapter="dns"),
            sign(role="adapter", adapter="validation"),
            sign("a secret that the server does not know", role="adapter", adapter="dns"),
            sign(role="adapter", adapter="dns", exp=datetime.now(UTC) - timedelta(hours=1)),
        ):
            async with FleetHttp(url, token=token) as fleet:
                statuses.append((await fleet.call("POST", f"{path}/statuses", report("dns"))).status)

    assert statuses == [201, 403, 401, 401]


# --- Observability ----------------------------------------------------------------------------------------------


async def test_only_probes_metrics_and_documents_need_no_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    await new_token(tokens, "ann", "viewer")
    async with (
        ApiProcess(file_url(tmp_path), directory=tmp_path, arguments=("--tokens-file", str(tokens))) as api,
        FleetHttp(await api.url()) as fleet,
    ):
        statuses = {
            path: (await fleet.call("GET", path)).status
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
        }
        ready = await fleet.get("/readyz")
        without_token = await fleet.call("GET", "clusters")
        unknown = await fleet.call("GET", "/nowhere")

    assert statuses == dict.fromkeys(statuses, 200)
    assert ready["status"] == "ok"
    assert ready["checks"]["api.database"]["status"] == "ok"
    assert (without_token.status, unknown.status) == (401, 404)
    assert unknown.code == "HYPERFLEET-NTF-000"


async def test_metrics_cover_requests_the_fleet_and_discarded_reports(tmp_path: Path) -> None:
    async with (
        ApiProcess(file_url(tmp_path), kinds=KINDS, directory=tmp_path) as api,
        FleetHttp(await api.url()) as fleet,
    ):
        waiting, ready = [f"clusters/{(await fleet.create(name))['id']}" for name in ("waiting", "ready")]
        await fleet.report(ready, *REQUIRED)
        await fleet.report(waiting, "dns")
        for generation, at, available in (
            (2, datetime.now(UTC), "True"),
            (1, datetime.now(UTC) - timedelta(minutes=1), "True"),
            (1, datetime.now(UTC), "Unknown"),
        ):
            body = report("dns", generation=generation, at=at, available=available)
            assert (await fleet.call("POST", f"{waiting}/statuses", body)).status == 204
        await fleet.call("GET", "clusters/missing")
        seen = await metrics(fleet)

    route = "/api/hyperfleet/v1/clusters/{id}"
    assert (
        seen[series("http_requests_total", route="/api/hyperfleet/v1/clusters", method="POST", status="201")] == 2
    )
    assert seen[series("http_requests_total", route=f"{route}/statuses", method="POST", status="201")] == 3
    assert seen[series("http_requests_total", route=f"{route}/statuses", method="POST", status="204")] == 3
    assert seen[series("http_requests_total", route=route, method="GET", status="404")] == 1
    assert seen[series("http_request_duration_seconds_count", route=f"{route}/statuses", method="POST")] == 6
    assert seen[series("resources", kind="Cluster", ready="true")] == 1
    assert seen[series("resources", kind="Cluster", ready="false")] == 1
    assert seen[series("longest_not_ready_seconds", kind="Cluster", adapter="validation")] > 0
    assert seen[series("longest_not_ready_seconds", kind="Cluster", adapter="dns")] == 0
    discarded = {reason: seen[series("reports_discarded_total", reason=reason)] for reason in DISCARD_REASONS}
    assert discarded == {"future_generation": 1, "stale_time": 1, "unknown": 1, "stale_generation": 0}
    assert not any("missing" in str(key) for key in seen)


async def test_a_request_id_is_in_the_response_the_access_log_and_the_audit(tmp_path: Path) -> None:
    async with ApiProcess(file_url(tmp_path), directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
        reply = await fleet.call(
            "POST", "clusters", {"name": "one", "spec": {"password": "hidden"}}, {"X-Request-Id": "req-1"}
        )
        without_id = await fleet.call("GET", "clusters", labels="team=hidden")
        line = await api.until_event("http.request", request_id="req-1")
        (entry,) = (await fleet.get("/api/v1/audit"))["items"]

    assert reply.headers["X-Request-Id"] == "req-1"
    assert len(without_id.headers["X-Request-Id"]) >= 16
    assert (line["method"], line["route"], line["status"], line["actor"]) == (
        "POST",
        "/api/hyperfleet/v1/clusters",
        201,
        "anonymous",
    )
    assert line["bytes"] == len(reply.content)
    assert line["milliseconds"] > 0
    assert (entry["request_id"], entry["action"], entry["resource_id"]) == ("req-1", "create", reply.json["id"])
    assert "hidden" not in api.stderr.decode()


# --- Failures and maintenance -----------------------------------------------------------------------------------


async def test_without_postgresql_readiness_is_off_and_requests_get_503(
    private_postgresql: PostgreSQLServer, tmp_path: Path
) -> None:
    with database(private_postgresql.url) as url:
        async with ApiProcess(url, directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
            created = await fleet.create("before")
            await asyncio.to_thread(private_postgresql.stop)
            try:
                during = [
                    await fleet.call("GET", f"clusters/{created['id']}"),
                    await fleet.call("GET", "clusters"),
                    await fleet.call("POST", "clusters", {"name": "during"}),
                ]
                unready = await fleet.call("GET", "/readyz")
                alive = await fleet.call("GET", "/healthz")
                scraped = await fleet.call("GET", "/metrics")
            finally:
                await asyncio.to_thread(private_postgresql.start)
            await fleet.until(200, "/readyz")
            after = await fleet.get(f"clusters/{created['id']}")
            code = await api.stop()

    assert [reply.status for reply in during] == [503, 503, 503]
    assert all(reply.code.startswith("HYPERFLEET-SVC") for reply in during)
    assert "Retry-After" in during[0].headers
    assert unready.status == 503
    assert unready.json["checks"]["api.database"]["status"] == "error"
    assert (alive.status, scraped.status) == (200, 200)
    assert after == created
    assert code == 0
    assert private_postgresql.password not in api.stderr.decode() + unready.content.decode()


async def test_the_server_waits_for_a_postgresql_that_starts_later(
    private_postgresql: PostgreSQLServer, tmp_path: Path
) -> None:
    with database(private_postgresql.url) as url:
        await asyncio.to_thread(private_postgresql.stop)
        async with ApiProcess(url, directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
            try:
                unready = await fleet.call("GET", "/readyz")
                refused = await fleet.call("POST", "clusters", {"name": "early"})
                alive = await fleet.call("GET", "/healthz")
            finally:
                await asyncio.to_thread(private_postgresql.start)
            await fleet.until(200, "/readyz")
            created = await fleet.create("late")
            code = await api.stop()

    assert (unready.status, refused.status, alive.status) == (503, 503, 200)
    assert "Connect call failed" in unready.json["checks"]["api.database"]["message"]
    assert created["generation"] == 1
    assert code == 0
    assert private_postgresql.password not in api.stderr.decode() + unready.content.decode()


@pytest.mark.parametrize("kind", list(DatabaseKind))
async def test_rows_older_than_the_retention_are_deleted(
    kind: DatabaseKind, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = empty_database(kind, request, tmp_path)
    body = {"name": "one", "spec": {"replicas": 1}}
    async with ApiProcess(url, kinds=KINDS, directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
        path = f"clusters/{(await fleet.call('POST', 'clusters', body, {'Idempotency-Key': 'k'})).json['id']}"
        await fleet.call("PATCH", path, {"spec": {"replicas": 2}})
        await fleet.call("POST", f"{path}/statuses", report("dns", generation=9))
        before = await count_rows(fleet, path)
        await api.stop()

    tables = ("audit", "discarded", "history", "answers")
    arguments = ("--insecure", *(f"--set=retention.{table}=1ms" for table in tables))
    async with (
        ApiProcess(url, kinds=KINDS, directory=tmp_path, arguments=arguments) as api,
        FleetHttp(await api.url()) as fleet,
    ):
        await api.until_event("retention.expired", entries=5)
        after = await count_rows(fleet, path)
        repeated = await fleet.call("POST", "clusters", body, {"Idempotency-Key": "k"})

    assert before == {"audit": 2, "discarded": 1, "generations": [2, 1]}
    assert after == {"audit": 0, "discarded": 0, "generations": [2]}
    assert repeated.status == 409, "the key has expired, but the name exists"


async def test_a_backup_of_a_running_server_can_be_restored(tmp_path: Path) -> None:
    url, copy = file_url(tmp_path), str(tmp_path / "copy.db")
    async with ApiProcess(url, kinds=KINDS, directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
        kept = await fleet.create("kept", labels={"a": "b"})
        backup = await run_command("backup", "--database-url", url, "--to", copy)
        await fleet.create("later")
        in_use = await run_command("restore", "--from", copy, "--database-url", url, "--force")
        await api.stop()

    restored = await run_command("restore", "--from", copy, "--database-url", url, "--force")
    async with ApiProcess(url, kinds=KINDS, directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
        listed = await fleet.get("clusters", labels="a=b")
        everything = await fleet.get("clusters")
        audit = await fleet.get("/api/v1/audit")

    assert (backup.code, restored.code) == (0, 0), (backup.stderr, restored.stderr)
    assert in_use.code != 0
    assert "in use" in in_use.stderr
    assert listed["items"] == everything["items"] == [kept]
    assert [entry["resource_id"] for entry in audit["items"]] == [kept["id"]]


@pytest.mark.parametrize("kind", list(DatabaseKind))
async def test_migrations_can_run_as_a_separate_step(
    kind: DatabaseKind, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = empty_database(kind, request, tmp_path)
    serve = ("api", "--insecure", "--listen", "127.0.0.1:0", "--database-url", url, "--set", "migrate=false")

    before = await run_command("migrate", "--check", "--database-url", url)
    refused = await run_command(*serve)
    done = await run_command("migrate", "--database-url", url)
    checked = await run_command("migrate", "--check", "--database-url", url, "--output", "json")
    async with ServiceProcess(serve, environ={}) as api:
        await api.until_event("http.listening")
        while_serving = await run_command("migrate", "--check", "--database-url", url)
        code = await api.stop()

    codes = [command.code for command in (before, refused, done, checked, while_serving)]
    assert codes == [1, 2, 0, 0, 0], refused.stderr
    assert "sentinel migrate" in refused.stderr
    assert msgspec.json.decode(checked.stdout)["up_to_date"] is True
    assert code == 0


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with ApiProcess(file_url(tmp_path), directory=tmp_path) as api, FleetHttp(await api.url()) as fleet:
        host, _, port = (await api.url()).removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        # A request in progress whose body never completes.
        writer.write(
            b"POST /api/hyperfleet/v1/clusters HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        await writer.drain()
        await fleet.get("clusters")
        api.send_signal(signal.SIGTERM)
        await api.until_event("service.stopping")
        api.send_signal(signal.SIGTERM)
        code = await api.exit_code(timeout=15)
        writer.close()

    assert code == 128 + signal.SIGTERM

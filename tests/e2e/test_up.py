"""`sentinel up` as a process, used through its API and its output."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import sys
from pathlib import Path

import aio_pika
import grpc
import msgspec
import pytest

from sentinel.runtime.clock import SystemClock
from sentinel.testing.hub_agent import HubAgent
from tests.support.brokers.pubsub import PROJECT, emulator_host
from tests.support.brokers.rabbitmq import unique
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import run_command
from tests.support.processes.up import (
    FAST_SETTINGS,
    UpProcess,
    get,
    until,
    until_ready,
    write_adapter,
    write_kinds,
)

ADAPTER_MODULE = """
from sentinel.adapter import Adapter, Done

adapter = Adapter("{name}")

@adapter.task(kinds={kinds})
async def reconcile(resource, context):
    return Done("seen by {name} in {folder}")
"""


def token_file_modes(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode)
        for file in folder.rglob("*")
        if file.is_file() and "token" in str(file.relative_to(folder))
    }


def tokens_in(folder: Path) -> dict[str, bytes]:
    files = [*folder.joinpath("tokens").iterdir(), *folder.glob("a*-token")]
    return {file.name: file.read_bytes().strip() for file in files}


def one_adapter(folder: Path, name: str) -> list[str]:
    """Return the arguments for a fleet of clusters with a single adapter of this name.

    Queues and subscriptions have the name of their adapter and outlive the process, so tests need unique names.
    """
    source = ADAPTER_MODULE.format(name=name, kinds=["Cluster"], folder="own")
    adapter = write_adapter(folder / "own", "own", source)
    kinds = write_kinds(folder, ("clusters", "Cluster", [name]))
    return [f"--adapter={adapter}", f"--kinds-file={kinds}"]


async def delete_from_rabbitmq(url: str, exchange: str, adapter: str) -> None:
    """Delete the exchange, and the queues of the adapter."""
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        for queue in (adapter, f"{adapter}-dead-letters"):
            await channel.queue_delete(queue)
        await channel.exchange_delete(exchange)


async def test_a_cluster_becomes_ready_recovers_and_is_removed(tmp_path: Path) -> None:
    async with UpProcess(tmp_path) as up:
        url = await up.url()
        async with FleetHttp(url) as fleet:
            cluster = await fleet.create("one", spec={"replicas": 3, "region": "us-east"})
            path = f"clusters/{cluster['id']}"
            created = await until_ready(fleet, path)

            await fleet.call("PATCH", path, {"spec": {"replicas": 5}})
            changed = await until_ready(fleet, path, generation=2)

            await fleet.call("PATCH", path, {"spec": {"replicas": 0}})
            await until(
                fleet,
                f"{path}/statuses",
                lambda reply: b"SpecRejected" in reply.content,
                expected="a rejected spec",
            )
            rejected = await fleet.get(path)
            why = await run_command("why", cluster["id"], environ={"SENTINEL_SERVER": url})

            await fleet.call("PATCH", path, {"spec": {"replicas": 1}})
            recovered = await until_ready(fleet, path, generation=4)

            deleted = await fleet.call("DELETE", path)
            await fleet.until(404, path)
        await up.until_printed("Cluster is gone")
        ended = await up.stop()

    adapters = {"ValidationSuccessful", "DnsSuccessful", "ProvisionSuccessful"}
    assert adapters <= {each["type"] for each in created["status"]["conditions"] if each["status"] == "True"}
    assert changed["spec"] == {"replicas": 5, "region": "us-east"}
    assert rejected["status"]["phase"] == "NotReady"
    assert (why.code, "replicas: expected a positive integer, got 0" in why.stdout) == (0, True)
    assert "10s" not in why.stdout  # the default max age, which the pulse in this process does not have
    assert recovered["status"]["observed_generation"] == 4
    assert deleted.status == 202
    assert ended == 0
    assert b"failed: no machines were free" in up.stdout
    assert 0 < up.stdout.index(f"is listening at {url}".encode()) < up.stdout.index(f"is up at {url}".encode())


async def test_a_restart_keeps_all_data_and_shows_no_token(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    data_dir = tmp_path / "data"

    async with UpProcess(data_dir, f"--ready-file={ready_file}") as first:
        line = await first.ready()
        url, agents = line["http"], line["grpc"]
        announced = msgspec.json.decode(ready_file.read_bytes())
        async with FleetHttp(url) as fleet:
            cluster = await fleet.create("kept", spec={"replicas": 2})
            before = await until_ready(fleet, f"clusters/{cluster['id']}")
        first_end = await first.stop()
        was_removed = not ready_file.exists()
    tokens = tokens_in(data_dir)
    async with UpProcess(data_dir) as second, FleetHttp(await second.url()) as fleet:
        after = await fleet.get(f"clusters/{cluster['id']}")
        pool = await fleet.create("pool", f"clusters/{cluster['id']}/nodepools")
        await until_ready(fleet, f"nodepools/{pool['id']}")
        second_end = await second.stop()

    assert announced == {"http": url, "grpc": agents, "token": None}
    assert was_removed
    assert (first_end, second_end) == (0, 0)
    assert (after["generation"], after["spec"], after["status"]["phase"]) == (1, before["spec"], "Ready")
    assert sorted(tokens) == ["adapter-dns", "adapter-provision", "adapter-validation", "pulse", "viewer"]
    assert tokens_in(data_dir) == tokens
    assert set(token_file_modes(data_dir).values()) == {0o600}
    output = bytes(first.stdout + first.stderr + second.stdout + second.stderr)
    assert not [name for name, token in tokens.items() if token in output]


async def test_own_adapters_and_kinds_join_the_loop(tmp_path: Path) -> None:
    added = write_adapter(tmp_path / "a", "mine", ADAPTER_MODULE.format(name="mine", kinds=["Gadget"], folder="a"))
    replacement = write_adapter(
        tmp_path / "b", "other", ADAPTER_MODULE.format(name="validation", kinds=["Gadget"], folder="b")
    )
    kinds = write_kinds(tmp_path, ("gadgets", "Gadget", ["mine", "dns"]))

    async with UpProcess(
        tmp_path / "data", f"--adapter={added}", f"--adapter={replacement}", f"--kinds-file={kinds}"
    ) as up:
        async with FleetHttp(await up.url()) as fleet:
            # The sample adapter would reject this spec; its replacement accepts it.
            gadget = await fleet.create("one", "gadgets", spec={"replicas": -1})
            await until_ready(fleet, f"gadgets/{gadget['id']}")
            statuses = await fleet.get(f"gadgets/{gadget['id']}/statuses")
            unknown = await fleet.call("GET", "clusters")
        ended = await up.stop()

    messages = {each["adapter"]: each["conditions"][1]["message"] for each in statuses["items"]}
    assert messages["mine"] == "seen by mine in a"
    assert messages["validation"] == "seen by validation in b"
    assert messages["dns"] == "the zone exists"
    assert (unknown.status, ended) == (404, 0)


async def test_loopback_needs_no_token_and_refuses_other_sites(tmp_path: Path) -> None:
    async with UpProcess(tmp_path) as up:
        url = await up.url()

        welcome = await get(f"{url}/")
        foreign_host = await get(f"{url}/api/hyperfleet/v1/clusters", Host="fleet.example")
        foreign_origin = await get(f"{url}/api/hyperfleet/v1/clusters", Origin="https://fleet.example")
        audit = await get(f"{url}/api/v1/audit")
        wrong_token = await get(f"{url}/api/v1/audit", Authorization="Bearer wrong")
        metrics = await get(f"{url}/metrics")
        ready = await get(f"{url}/readyz")
        ended = await up.stop()

    assert welcome[0] == 200
    assert b'href="/docs"' in welcome[1]
    assert (foreign_host[0], foreign_origin[0]) == (421, 403)
    assert (audit[0], wrong_token[0]) == (200, 401)
    for family in (
        b'hyperfleet_sentinel_decisions_total{decision="publish"',
        b'hyperfleet_adapter_evaluations_total{adapter="dns"',
        b"hyperfleet_api_",
    ):
        assert family in metrics[1], family
    assert {"pulse clusters", "pulse nodepools", "adapter dns", "api"} <= msgspec.json.decode(ready[1])[
        "checks"
    ].keys()
    assert ended == 0


async def test_other_addresses_need_a_token_that_is_printed_once(tmp_path: Path) -> None:
    ready_file, data_dir = tmp_path / "ready.json", tmp_path / "data"
    arguments = (data_dir, f"--ready-file={ready_file}")

    async with UpProcess(*arguments, listen="0.0.0.0:0") as first:
        url = await first.url()
        token = msgspec.json.decode(ready_file.read_bytes())["token"]
        ready_mode = stat.S_IMODE(ready_file.stat().st_mode)
        without = await get(f"{url}/api/hyperfleet/v1/clusters")
        admitted = await get(f"{url}/api/v1/audit", Authorization=f"Bearer {token}")
        probe = await get(f"{url}/healthz")
        await first.stop()
    async with UpProcess(*arguments, listen="0.0.0.0:0") as second:
        await second.url()
        kept = msgspec.json.decode(ready_file.read_bytes())["token"]
        await second.stop()

    assert (without[0], admitted[0], probe[0]) == (401, 200, 200)
    assert kept == token
    assert first.stdout.count(token.encode()) == 1
    assert token.encode() not in bytes(first.stderr + second.stdout + second.stderr)
    assert (ready_mode, token_file_modes(data_dir)["admin-token"]) == (0o600, 0o600)


async def test_a_failed_part_shows_in_readiness_and_is_rebuilt(rabbitmq_url: str, tmp_path: Path) -> None:
    name, exchange = unique("adapter"), unique("exchange")
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        # The adapter cannot declare its queue while one of the same name has other properties.
        conflicting = await channel.declare_queue(name, durable=False, auto_delete=False)
        async with UpProcess(
            tmp_path / "data",
            *one_adapter(tmp_path, name),
            f"--broker-url={rabbitmq_url}",
            environ={"BROKER_EXCHANGE": exchange},
        ) as up:
            await up.until_event("part.failed", name=f"adapter {name}")
            status, body = await get(f"{await up.address()}/readyz")
            await conflicting.delete()

            async with FleetHttp(await up.url()) as fleet:
                cluster = await fleet.create("one")
                await until_ready(fleet, f"clusters/{cluster['id']}")
            ended = await up.stop()
    await delete_from_rabbitmq(rabbitmq_url, exchange, name)

    checks = msgspec.json.decode(body)["checks"]
    assert status == 503
    assert "in a row" in checks[f"adapter {name}"]["message"]
    assert checks["pulse clusters"]["status"] == "ok"
    assert ended == 0


@pytest.mark.parametrize("broker", ["rabbitmq", "pubsub"])
async def test_another_broker_and_database_work_as_well(
    broker: str, request: pytest.FixtureRequest, fresh_postgresql_database: str, tmp_path: Path
) -> None:
    name, exchange = unique("adapter"), unique("exchange")
    environ = {"BROKER_EXCHANGE": exchange}
    if broker == "rabbitmq":
        url = str(request.getfixturevalue("rabbitmq_url"))
    else:
        environ = {"PUBSUB_EMULATOR_HOST": emulator_host()}
        url = f"pubsub://{PROJECT}/{unique('topic')}"

    async with UpProcess(
        tmp_path / "data",
        *one_adapter(tmp_path, name),
        f"--broker-url={url}",
        f"--database-url={fresh_postgresql_database}",
        environ=environ,
    ) as up:
        async with FleetHttp(await up.url()) as fleet:
            cluster = await fleet.create("one")
            await until_ready(fleet, f"clusters/{cluster['id']}")
        ended = await up.stop()
    if broker == "rabbitmq":
        await delete_from_rabbitmq(url, exchange, name)

    assert ended == 0
    assert not (tmp_path / "data" / "fleet.db").exists()


async def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path) -> None:
    data_dir, ready_file = tmp_path / "data", tmp_path / "ready.json"
    async with UpProcess(data_dir, f"--ready-file={ready_file}") as first:
        await first.url()
        before = ready_file.read_bytes()

        async with UpProcess(
            data_dir, f"--ready-file={ready_file}", f"--database-url=sqlite:///{tmp_path}/x"
        ) as second:
            same_directory = await second.exit_code()
        async with UpProcess(
            tmp_path / "other", f"--ready-file={ready_file}", f"--database-url=sqlite:///{data_dir}/fleet.db"
        ) as third:
            same_database = await third.exit_code()
        after = ready_file.read_bytes()
        ended = await first.stop()

    assert (same_directory, same_database, ended) == (2, 2, 0)
    assert b"is in use" in second.stderr
    assert b"is in use" in third.stderr
    assert b"Traceback" not in second.stderr + third.stderr
    assert after == before


async def test_closing_the_terminal_ends_it_like_a_signal(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    async with UpProcess(tmp_path / "data", f"--ready-file={ready_file}") as up:
        await up.url()

        ended = await up.stop(signal.SIGHUP)

    assert (ended, ready_file.exists()) == (0, False)


@pytest.mark.parametrize("output", ["a full pipe", "a full disk"])
async def test_the_loop_survives_a_stuck_or_closed_output(output: str, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    full = os.open("/dev/full", os.O_WRONLY)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "up", "--listen=127.0.0.1:0", "--listen-grpc=127.0.0.1:0"),
        f"--data-dir={tmp_path / 'data'}",
        f"--ready-file={ready_file}",
        stdout=full if output == "a full disk" else writing,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **FAST_SETTINGS, "PYTHONIOENCODING": "ascii"},
    )
    async with asyncio.timeout(60):
        while not ready_file.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)
        async with FleetHttp(msgspec.json.decode(ready_file.read_bytes())["http"]) as fleet:
            created = [await fleet.create(f"zwölf-{number}") for number in range(12)]
            for cluster in created:
                await until_ready(fleet, f"clusters/{cluster['id']}")

        process.terminate()
        code = await process.wait()
    for descriptor in (reading, writing, full):
        os.close(descriptor)

    assert code == 0
    assert not ready_file.exists()


async def test_a_demo_creates_a_fleet_and_continues_after_a_restart(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--demo", "--agents=0") as first:
        await first.until_printed("(fjord-pool): creates a NodePool")
        async with FleetHttp(await first.url()) as fleet:
            created = {each["name"]: each["id"] async for each in fleet.walk("clusters")}
            await until_ready(fleet, f"clusters/{created['amber']}")
        first_end = await first.stop()
    async with UpProcess(tmp_path, "--demo", "--agents=0") as second, FleetHttp(await second.url()) as fleet:
        kept = {each["name"]: each["id"] async for each in fleet.walk("clusters")}
        second_end = await second.stop()

    assert set(created) == {"amber", "birch", "cedar", "delta", "ember", "fjord"}
    assert created.items() <= kept.items()
    assert (first_end, second_end) == (0, 0)


async def test_a_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]

        async with UpProcess(tmp_path, listen=f"127.0.0.1:{port}") as up:
            code = await up.exit_code()

    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in up.stderr.decode()
    assert "--listen" in up.stderr.decode()
    assert "Traceback" not in up.stderr.decode()


async def test_a_port_for_agents_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]

        async with UpProcess(tmp_path, f"--listen-grpc=127.0.0.1:{port}") as up:
            code = await up.exit_code()

    errors = up.stderr.decode()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use; choose another" in errors
    assert "--listen-grpc" in errors
    assert "Traceback" not in errors


async def test_the_hub_serves_users_and_agents_beside_the_fleet(tmp_path: Path) -> None:
    async with UpProcess(tmp_path) as up:
        line = await up.ready()
        url = line["http"]
        agent = HubAgent(line["grpc"], "edge-1", registration_token="", clock=SystemClock())
        await agent.register()
        instances = await get(f"{url}/api/v1/instances")
        document = await get(f"{url}/openapi.json")
        metrics = await get(f"{url}/metrics")
        ready = await get(f"{url}/readyz")
        await agent.close()
        ended = await up.stop()

    paths = msgspec.json.decode(document[1])["paths"].keys()
    assert [each["id"] for each in msgspec.json.decode(instances[1])["items"]] == ["edge-1"]
    assert {"/api/hyperfleet/v1/clusters", "/api/v1/instances", "/api/v1/users"} <= paths
    assert b"hub_instances{" in metrics[1]
    assert {"api", "hub", "grpc"} <= msgspec.json.decode(ready[1])["checks"].keys()
    assert ended == 0


async def test_agents_from_elsewhere_need_a_token_that_is_printed_once(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--listen-grpc=0.0.0.0:0") as up:
        line = await up.ready()
        token = (tmp_path / "agent-token").read_text().strip()
        known = HubAgent(line["grpc"], "edge-1", registration_token=token, clock=SystemClock())
        await known.register()
        unknown = HubAgent(line["grpc"], "edge-2", registration_token="", clock=SystemClock())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unknown.register()
        await known.close()
        await unknown.close()
        users = await get(f"{line['http']}/api/v1/instances")
        await up.stop()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert users[0] == 200
    assert up.stdout.count(token.encode()) == 1
    assert token.encode() not in bytes(up.stderr)
    assert b"travel unencrypted" in up.stderr
    assert token_file_modes(tmp_path)["agent-token"] == 0o600


async def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "sentinel.cli",
            "up",
            "--demo",
            "--listen=127.0.0.1:0",
            "--listen-grpc=127.0.0.1:0",
            "--agents=0",
        ),
        f"--data-dir={tmp_path}",
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(writing)

    with os.fdopen(reading, "rb") as lines:
        await asyncio.to_thread(lines.readline)
    _, errors = await asyncio.wait_for(process.communicate(), 60)

    assert (process.returncode, errors) == (0, b"")


async def test_it_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--for", "3s") as up:
        await up.url()

        assert await up.exit_code() == 0
        assert b"0 events published, 0 failed, 0 evaluations in" in up.stdout

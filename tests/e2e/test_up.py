"""The whole loop in one command, as a process: nothing but `sentinel up`, and somebody who uses its API."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import sys
from pathlib import Path

import aio_pika
import msgspec
import pytest

from tests.support.brokers.pubsub import PROJECT, emulator_host
from tests.support.brokers.rabbitmq import unique
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.up import (
    PROMPT,
    UpProcess,
    client,
    get,
    until,
    until_gone,
    until_ready,
    write_adapter,
    write_kinds,
)

REPORTER = """
from sentinel.adapter import Adapter, Done

adapter = Adapter("{name}")

@adapter.task(kinds={kinds})
async def look(resource, context):
    return Done("seen by {name} of {whom}")
"""


def modes(folder: Path) -> dict[str, int]:
    return {
        str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode)
        for file in folder.rglob("*")
        if file.is_file() and "token" in str(file.relative_to(folder))
    }


def tokens_in(folder: Path) -> dict[str, bytes]:
    files = [*folder.joinpath("tokens").iterdir(), *folder.glob("admin-token")]
    return {file.name: file.read_bytes().strip() for file in files}


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
                what="rejected",
            )
            broken = await fleet.get(path)
            code, why = await client(url, "why", cluster["id"])

            await fleet.call("PATCH", path, {"spec": {"replicas": 1}})
            healed = await until_ready(fleet, path, generation=4)

            deleted = await fleet.call("DELETE", path)
            await until_gone(fleet, path)
        await up.until_said("Cluster is gone")
        ended = await up.stop()

    adapters = {"ValidationSuccessful", "DnsSuccessful", "ProvisionSuccessful"}
    assert adapters <= {each["type"] for each in created["status"]["conditions"] if each["status"] == "True"}
    assert changed["spec"] == {"replicas": 5, "region": "us-east"}
    assert broken["status"]["phase"] == "NotReady"
    assert (code, b"replicas: expected a positive integer, got 0" in why) == (0, True)
    assert b"10s" not in why  # the pulse in this process has another max age, and the API beside it knows
    assert healed["status"]["observed_generation"] == 4
    assert deleted.status == 202
    assert ended == 0
    assert b"failed: no machines were free" in up.stdout
    assert 0 < up.stdout.index(f"is listening at {url}".encode()) < up.stdout.index(f"is up at {url}".encode())


async def test_a_restart_keeps_all_data_and_shows_no_token(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    home = tmp_path / "home"

    async with UpProcess(home, f"--ready-file={ready_file}") as first:
        url = await first.url()
        announced = msgspec.json.decode(ready_file.read_bytes())
        async with FleetHttp(url) as fleet:
            cluster = await fleet.create("lasting", spec={"replicas": 2})
            before = await until_ready(fleet, f"clusters/{cluster['id']}")
        first_end = await first.stop()
        was_withdrawn = not ready_file.exists()
    tokens = tokens_in(home)
    async with UpProcess(home) as second, FleetHttp(await second.url()) as fleet:
        after = await fleet.get(f"clusters/{cluster['id']}")
        pool = await fleet.create("pool", f"clusters/{cluster['id']}/nodepools")
        await until_ready(fleet, f"nodepools/{pool['id']}")
        second_end = await second.stop()

    assert announced == {"http": url, "grpc": None, "token": None}
    assert was_withdrawn
    assert (first_end, second_end) == (0, 0)
    assert (after["generation"], after["spec"], after["status"]["phase"]) == (1, before["spec"], "Ready")
    assert sorted(tokens) == ["adapter-dns", "adapter-provision", "adapter-validation", "pulse"]
    assert tokens_in(home) == tokens
    assert set(modes(home).values()) == {0o600}
    output = bytes(first.stdout + first.stderr + second.stdout + second.stderr)
    assert not [name for name, token in tokens.items() if token in output]


async def test_own_adapters_and_kinds_join_the_loop(tmp_path: Path) -> None:
    mine = write_adapter(tmp_path / "a", "mine", REPORTER.format(name="mine", kinds=["Gadget"], whom="a"))
    stand_in = write_adapter(
        tmp_path / "b", "other", REPORTER.format(name="validation", kinds=["Gadget"], whom="b")
    )
    kinds = write_kinds(tmp_path, ("gadgets", "Gadget", ["mine", "dns"]))

    async with UpProcess(
        tmp_path / "home", f"--adapter={mine}", f"--adapter={stand_in}", f"--kinds-file={kinds}"
    ) as up:
        async with FleetHttp(await up.url()) as fleet:
            # A spec that the sample would reject; but the one that stands in for it does not.
            gadget = await fleet.create("one", "gadgets", spec={"replicas": -1})
            await until_ready(fleet, f"gadgets/{gadget['id']}")
            statuses = await fleet.get(f"gadgets/{gadget['id']}/statuses")
            unknown = await fleet.call("GET", "clusters")
        ended = await up.stop()

    said = {each["adapter"]: each["conditions"][1]["message"] for each in statuses["items"]}
    assert said["mine"] == "seen by mine of a"
    assert said["validation"] == "seen by validation of b"
    assert said["dns"] == "the zone is there"
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
    ready_file, home = tmp_path / "ready.json", tmp_path / "home"
    arguments = (home, f"--ready-file={ready_file}")

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
    assert (ready_mode, modes(home)["admin-token"]) == (0o600, 0o600)


async def test_a_failed_part_shows_in_readiness_and_is_rebuilt(rabbitmq_url: str, tmp_path: Path) -> None:
    name = unique("adapter")
    own = write_adapter(tmp_path / "own", "own", REPORTER.format(name=name, kinds=["Cluster"], whom="us"))
    kinds = write_kinds(tmp_path, ("clusters", "Cluster", [name]))
    exchange = unique("exchange")
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        # Somebody else's queue has the name already, and is of another sort: a person has to mend that.
        taken = await channel.declare_queue(name, durable=False, auto_delete=False)
        async with UpProcess(
            tmp_path / "home",
            f"--adapter={own}",
            f"--kinds-file={kinds}",
            f"--broker-url={rabbitmq_url}",
            environ={"BROKER_EXCHANGE": exchange},
        ) as up:
            await up.until_event("part.failed", name=f"adapter {name}")
            status, body = await get(f"{await up.address()}/readyz")
            await taken.delete()

            async with FleetHttp(await up.url()) as fleet:
                cluster = await fleet.create("patient")
                await until_ready(fleet, f"clusters/{cluster['id']}")
            ended = await up.stop()
        for queue in (name, f"{name}-dead-letters"):
            await channel.queue_delete(queue)
        await channel.exchange_delete(exchange)

    checks = msgspec.json.decode(body)["checks"]
    assert status == 503
    assert "in a row" in checks[f"adapter {name}"]["message"]
    assert checks["pulse clusters"]["status"] == "ok"
    assert ended == 0


@pytest.mark.parametrize("broker", ["rabbitmq", "pubsub"])
async def test_another_broker_and_database_work_as_well(
    broker: str, request: pytest.FixtureRequest, fresh_postgresql_database: str, tmp_path: Path
) -> None:
    exchange = unique("exchange")
    environ = {"BROKER_EXCHANGE": exchange}
    if broker == "rabbitmq":
        url = str(request.getfixturevalue("rabbitmq_url"))
    else:
        environ = {"PUBSUB_EMULATOR_HOST": emulator_host()}
        url = f"pubsub://{PROJECT}/{unique('topic')}"
    # Names of its own, because queues and subscriptions outlive the process.
    name = unique("adapter")
    own = write_adapter(tmp_path / "own", "own", REPORTER.format(name=name, kinds=["Cluster"], whom="us"))
    kinds = write_kinds(tmp_path, ("clusters", "Cluster", [name]))

    async with UpProcess(
        tmp_path / "home",
        f"--adapter={own}",
        f"--kinds-file={kinds}",
        f"--broker-url={url}",
        f"--database-url={fresh_postgresql_database}",
        environ=environ,
    ) as up:
        async with FleetHttp(await up.url()) as fleet:
            cluster = await fleet.create("elsewhere")
            await until_ready(fleet, f"clusters/{cluster['id']}")
        ended = await up.stop()
    if broker == "rabbitmq":
        connection = await aio_pika.connect(url)
        async with connection, connection.channel() as channel:
            for queue in (name, f"{name}-dead-letters"):
                await channel.queue_delete(queue)
            await channel.exchange_delete(exchange)

    assert ended == 0
    assert not (tmp_path / "home" / "fleet.db").exists()


async def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path) -> None:
    home, ready_file = tmp_path / "home", tmp_path / "ready.json"
    async with UpProcess(home, f"--ready-file={ready_file}") as first:
        await first.url()
        announced = ready_file.read_bytes()

        async with UpProcess(
            home, f"--ready-file={ready_file}", f"--database-url=sqlite:///{tmp_path}/x"
        ) as second:
            refused = await second.exit_code()
        async with UpProcess(
            tmp_path / "other", f"--ready-file={ready_file}", f"--database-url=sqlite:///{home}/fleet.db"
        ) as third:
            refused_too = await third.exit_code()
        still = ready_file.read_bytes()
        ended = await first.stop()

    assert (refused, refused_too, ended) == (2, 2, 0)
    assert b"is in use" in second.stderr
    assert b"is in use" in third.stderr
    assert b"Traceback" not in second.stderr + third.stderr
    assert still == announced


async def test_closing_the_terminal_ends_it_like_a_signal(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    async with UpProcess(tmp_path / "home", f"--ready-file={ready_file}") as up:
        await up.url()

        ended = await up.stop(signal.SIGHUP)

    assert (ended, ready_file.exists()) == (0, False)


@pytest.mark.parametrize("output", ["a reader that does not read", "a disk that is full"])
async def test_the_loop_survives_a_stuck_or_closed_output(output: str, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    full = os.open("/dev/full", os.O_WRONLY)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "up", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'home'}"),
        f"--ready-file={ready_file}",
        stdout=full if output == "a disk that is full" else writing,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **PROMPT, "PYTHONIOENCODING": "ascii"},
    )
    async with asyncio.timeout(60):
        while not ready_file.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)
        async with FleetHttp(msgspec.json.decode(ready_file.read_bytes())["http"]) as fleet:
            made = [await fleet.create(f"zwölf-{number}") for number in range(12)]
            for cluster in made:
                await until_ready(fleet, f"clusters/{cluster['id']}")

        process.terminate()
        code = await process.wait()
    for descriptor in (reading, writing, full):
        os.close(descriptor)

    assert code == 0
    assert not ready_file.exists()


async def test_a_demo_creates_a_fleet_and_continues_after_a_restart(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--demo") as first:
        await first.until_said("(fjord-pool): asks for a NodePool")
        async with FleetHttp(await first.url()) as fleet:
            made = {each["name"]: each["id"] async for each in fleet.walk("clusters")}
            await until_ready(fleet, f"clusters/{made['amber']}")
        first_end = await first.stop()
    async with UpProcess(tmp_path, "--demo") as second, FleetHttp(await second.url()) as fleet:
        kept = {each["name"]: each["id"] async for each in fleet.walk("clusters")}
        second_end = await second.stop()

    assert set(made) == {"amber", "birch", "cedar", "delta", "ember", "fjord"}
    assert made.items() <= kept.items()
    assert (first_end, second_end) == (0, 0)


async def test_a_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]

        async with UpProcess(tmp_path, listen=f"127.0.0.1:{port}") as up:
            code = await up.exit_code()

    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in up.stderr.decode()
    assert "--listen" in up.stderr.decode()
    assert "Traceback" not in up.stderr.decode()


async def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "up", "--demo", "--listen=127.0.0.1:0", f"--data-dir={tmp_path}"),
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
    async with UpProcess(tmp_path, "--for", "100ms") as up:
        await up.url()

        assert await up.exit_code() == 0
        assert b"0 events published, 0 failed, 0 evaluations in" in up.stdout

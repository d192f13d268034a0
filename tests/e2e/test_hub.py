"""`sentinel hub serve` as a process: killed and restarted, with a thousand agents, two at once, and fuzzed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from sentinel.testing.hub_agent import Behavior, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.http_client import FleetHttp
from tests.support.hub.authority import Authority, served_serial
from tests.support.processes.hub import TIMEOUT, HubProcess, RunningHub, serving
from tools.services.server import free_port

AGENTS = 1000
MORTAL = ("-m", "tests.e2e.mortal_hub")
SERVICE = pb.DESCRIPTOR.services_by_name["FleetService"]
REQUESTS: dict[str, type[Message]] = {
    method.name: getattr(pb, method.input_type.name) for method in SERVICE.methods
}
EXPECTED_STATUSES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
}


@pytest.fixture(params=list(DatabaseKind))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, request, tmp_path)


def content(number: int) -> str:
    """A valid configuration."""
    return f"""
system {{ worker-threads {number} }}
listeners {{ listener "web" {{ address "127.0.0.1:8088" }} }}
routes {{ route "health" {{ matches {{ path "/health" }}; builtin-handler "health" }} }}
"""


async def test_a_killed_hub_keeps_sessions_states_and_assignments(database_url: str) -> None:
    port = free_port()
    async with AsyncExitStack() as agents:
        async with serving(database_url, port=port) as hub:
            await hub.save(content(1), content(2))
            well = await agents.enter_async_context(HubAgent(hub.address, "well"))
            ill = await agents.enter_async_context(HubAgent(hub.address, "ill"))
            for agent in (well, ill):
                await agent.register()
            await hub.assign("well", 1)
            await well.fetch()
            await hub.assign("well", 2)
            await ill.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED, message="slow"))

            hub.process.send_signal(signal.SIGKILL)
            assert await hub.process.exit_code() == -signal.SIGKILL

        async with serving(database_url, port=port) as hub:
            kept = await hub.call("GET", "instances/ill")
            response = await heartbeat_after_restart(well)
            earlier = await well.get_config("api@1")
            await well.fetch()
            settled = await well.heartbeat()
            await hub.until_instance("well", in_sync=True)
            assert await hub.process.stop() == 0

    assert (kept["state"], kept["message"]) == ("degraded", "slow")
    assert response.latest_config_version == "api@2"
    assert [action.type for action in response.actions] == [pb.PendingAction.FETCH_CONFIG]
    assert earlier.content == content(1)
    assert not settled.config_update_available


@pytest.mark.parametrize(
    ("fails", "ended", "states"),
    [
        ((), ("completed", "none"), {"completed": 6}),
        (("api@2",), ("failed", "completed"), {"rolled_back": 5, "skipped": 1}),
    ],
)
async def test_a_deployment_outlives_a_hub_that_is_killed_again_and_again(
    database_url: str, fails: tuple[str, ...], ended: tuple[str, str], states: dict[str, int]
) -> None:
    port, ids = free_port(), [f"edge-{number}" for number in range(1, 7)]
    async with AsyncExitStack() as stack:
        async with serving(database_url, port=port) as hub:
            await hub.save(content(1), content(2))
            tasks = []
            for instance_id in ids:
                agent = await stack.enter_async_context(HubAgent(hub.address, instance_id))
                await agent.register()
                await hub.assign(instance_id, 1)
                behavior = Behavior(
                    heartbeat_interval=timedelta(seconds=1), fails=fails if instance_id == "edge-5" else ()
                )
                tasks.append(asyncio.create_task(agent.run(behavior)))
                await hub.until_instance(instance_id, in_sync=True, assigned="api@1")
            stack.push_async_callback(cancel, tasks)
            deployment = await hub.call(
                "POST",
                "deployments",
                {
                    "config_id": "api",
                    "version": 2,
                    "targets": {"ids": ids},
                    "strategy": "rolling",
                    "rolling": {"batch_delay": "0s"},
                },
            )
            await kill(hub)
        path = f"deployments/{deployment['id']}"
        for batch in (2, 4, 5):
            async with serving(database_url, port=port) as hub:
                await until_batch(hub, path, batch)
                await kill(hub)
        async with serving(database_url, port=port) as hub:
            over = await until_batch(hub, path, 7)
            story = await hub.call("GET", f"{path}/events?size=1000")
            for instance_id in ids:
                await hub.until_instance(instance_id, in_sync=True, state="online")
            assert await hub.process.stop() == 0

    assert (over["state"], over["rollback"], over["counts"]) == (*ended, states)
    data = [each["data"] for each in story["items"] if each["type"] == "deployment.instance"]
    sent = [each["instance_id"] for each in data if each["state"] == "pending"]
    assert sent == ids[: len(sent)], "nobody is sent it twice"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["before", "after"])
async def test_each_step_of_a_rollout_may_be_the_last_of_a_hub(tmp_path: Path, point: str) -> None:
    """Each hub is killed at its second step: the first one is often a report that was not answered."""
    file, port, ids = tmp_path / "hub.db", free_port(), ["edge-1", "edge-2", "edge-3"]
    async with AsyncExitStack() as stack:
        async with serving(f"sqlite:///{file}", port=port) as hub:
            await hub.save(content(1), content(2))
            agents = [await stack.enter_async_context(HubAgent(hub.address, each)) for each in ids]
            for agent in agents:
                await agent.register()
                await hub.assign(agent.instance_id, 1)
                await agent.fetch()
            body = {"config_id": "api", "version": 2, "targets": {"ids": ids}, "rolling": {"batch_delay": "0s"}}
            path = f"deployments/{(await hub.call('POST', 'deployments', body))['id']}"
            await kill(hub)
        tasks = [
            asyncio.create_task(
                agent.run(
                    Behavior(
                        heartbeat_interval=timedelta(seconds=1),
                        fails=("api@2",) if agent.instance_id == "edge-2" else (),
                    )
                )
            )
            for agent in agents
        ]
        stack.push_async_callback(cancel, tasks)
        deaths = 0
        while await dies_in_a_rollout(file, port, (*MORTAL, point, "2")):
            deaths += 1
        async with serving(f"sqlite:///{file}", port=port) as hub:
            over = await hub.call("GET", path)
            story = await hub.call("GET", f"{path}/events?size=1000")
            for each in ids:
                await hub.until_instance(each, in_sync=True, assigned="api@1", state="online")

    assert (over["state"], over["rollback"]) == ("failed", "completed")
    assert over["counts"] == {"rolled_back": 2, "skipped": 1}
    data = [each["data"] for each in story["items"] if each["type"] == "deployment.instance"]
    assert [each["instance_id"] for each in data if each["state"] == "pending"] == ids[:2]
    assert 8 <= deaths <= 40


async def dies_in_a_rollout(file: Path, port: int, program: tuple[str, ...]) -> bool:
    """Let a hub serve until it is dead, or no deployment is in progress any more. Returns whether it is dead."""
    address = f"127.0.0.1:{port}"
    async with HubProcess(f"sqlite:///{file}", "--insecure", listen_grpc=address, program=program) as process:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while process.is_running:
                with closing(sqlite3.connect(file)) as database:
                    [(active,)] = database.execute("SELECT count(*) FROM hub_deployments WHERE NOT is_over")
                if not active:
                    return False
                await asyncio.sleep(0.05)
        assert await process.exit_code() == -signal.SIGKILL
    return True


async def test_the_lock_of_a_deployment_ends_with_the_hub_that_holds_it(fresh_postgresql_database: str) -> None:
    url, program = fresh_postgresql_database, (*MORTAL, "stopped", "1")
    async with (
        serving(url) as hub,
        HubProcess(url, "--insecure", program=program) as dying,
        FleetHttp(await dying.url()) as rest,
        HubAgent(hub.address, "edge-1") as agent,
    ):
        await hub.save(content(1))
        await agent.register()
        body = {"config_id": "api", "version": 1, "targets": {"ids": ["edge-1"]}}
        path = f"deployments/{(await hub.call('POST', 'deployments', body))['id']}"
        pausing = asyncio.create_task(rest.call("POST", f"/api/v1/{path}/pause"))
        await until_stopped(dying.pid)

        acknowledging = asyncio.create_task(agent.ack_deployment(path.partition("/")[2]))
        await postgresql.wait_for_blocked(url)
        is_waiting = not acknowledging.done()
        dying.send_signal(signal.SIGKILL)
        await acknowledging
        await asyncio.gather(pausing, return_exceptions=True)
        found = await hub.call("GET", path)

    assert is_waiting
    assert (found["state"], found["counts"]) == ("running", {"in_progress": 1})


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


async def until_stopped(pid: int) -> None:
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while not is_stopped(pid):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)


async def kill(hub: RunningHub) -> None:
    hub.process.send_signal(signal.SIGKILL)
    assert await hub.process.exit_code() == -signal.SIGKILL


async def until_batch(hub: RunningHub, path: str, position: int) -> dict[str, Any]:
    """Wait until a deployment has reached a batch, or is over."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while True:
            deployment: dict[str, Any] = await hub.call("GET", path)
            if deployment["finished_time"] is not None or deployment["batch"]["position"] >= position:
                return deployment
            await asyncio.sleep(0.05)


async def heartbeat_after_restart(agent: HubAgent) -> pb.HeartbeatResponse:
    """Send a heartbeat as soon as the agent is connected again."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while True:
            try:
                return await agent.heartbeat()
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                await asyncio.sleep(0.1)


async def test_a_stopped_hub_stores_what_it_has_heard(database_url: str) -> None:
    async with serving(database_url) as hub, HubAgent(hub.address, "edge-1") as agent:
        await agent.register()
        status = pb.InstanceStatus(state=pb.InstanceStatus.HEALTHY, uptime_seconds=77)
        await agent.heartbeat(status=status)
        events = await agent.subscribe()
        assert await hub.process.stop() == 0
        ended = await events.ended()

    async with serving(database_url) as hub:
        stored = await hub.call("GET", "instances/edge-1")

    assert stored["uptime_seconds"] == 77
    assert ended is grpc.StatusCode.UNAVAILABLE


@pytest.mark.timeout(900)
async def test_a_thousand_agents_get_what_is_assigned_to_them(tmp_path: Path) -> None:
    behavior = Behavior(heartbeat_interval=timedelta(seconds=5))
    async with serving(f"sqlite:///{tmp_path / 'hub.db'}") as hub, AsyncExitStack() as stack:
        await hub.save(content(1))
        agents = [HubAgent(hub.address, f"edge-{number}") for number in range(AGENTS)]
        for agent in agents:
            stack.push_async_callback(agent.close)
        running = [asyncio.create_task(agent.run(behavior)) for agent in agents]
        stack.push_async_callback(cancel, running)
        await until_metric(hub, "hub_streams", AGENTS, running)

        for start in range(0, AGENTS, 50):
            await asyncio.gather(*(hub.assign(agent.instance_id, 1) for agent in agents[start : start + 50]))
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            for agent in agents:
                await agent.changed.wait()

        await until_metric(hub, "hub_agents_online", AGENTS, running)
        page = await hub.call("GET", "instances?size=1000")
        assert {agent.running_version for agent in agents} == {"api@1"}
        assert page["total"] == AGENTS
        assert not [task for task in running if task.done()]


async def until_metric(hub: RunningHub, name: str, value: float, running: list[asyncio.Task[None]]) -> None:
    """Wait until a metric has this value. An agent that has failed ends the wait."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while True:
            text = (await hub.rest.call("GET", "/metrics")).content.decode()
            if f"\n{name} {value:.1f}\n" in text:
                return
            for task in running:
                if task.done():
                    task.result()
            await asyncio.sleep(0.2)


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_hubs_on_one_postgresql_are_one(fresh_postgresql_database: str) -> None:
    async with serving(fresh_postgresql_database) as other:
        async with serving(fresh_postgresql_database) as dying:
            await other.save(content(1), content(2))
            async with HubAgent(dying.address, "edge-1") as agent:
                await agent.register()
                events = await agent.subscribe()
                await other.assign("edge-1", 1)
                event = await events.next_of(pb.Event.CONFIG_UPDATE)
                token = agent.token
                dying.process.send_signal(signal.SIGKILL)
                await dying.process.exit_code()

        async with HubAgent(other.address, "edge-1") as moved:
            moved.token = token
            events = await moved.subscribe()
            repeated = await events.next_of(pb.Event.CONFIG_UPDATE)
            await moved.fetch()
            response = await moved.heartbeat()
            await other.assign("edge-1", 2)
            following = await events.next_of(pb.Event.CONFIG_UPDATE)

    assert event.config_update.config_version == "api@1"
    assert repeated.event_id == event.event_id
    assert not response.config_update_available
    assert following.config_update.config_version == "api@2"


async def test_a_hub_that_hides_nothing_says_so(tmp_path: Path) -> None:
    process = HubProcess(
        f"sqlite:///{tmp_path / 'hub.db'}", f"--tokens-file={tmp_path / 'tokens.yaml'}", listen_grpc=":0"
    )
    (tmp_path / "tokens.yaml").write_text(f"tokens:\n  - {{name: fleet, role: agent, sha256: {'ab' * 32}}}\n")

    async with process:
        warning = await process.until_event("settings.warning")
        address = await process.grpc_address()
        async with HubAgent(f"127.0.0.1:{address.rpartition(':')[2]}", "edge-1") as agent:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await agent.register()

    assert "travel unencrypted" in warning["problem"]
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_certificates_are_renewed_and_revoked_while_it_runs(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    files = {"tls-cert": "hub.crt", "tls-key": "hub.key", "client-ca": "ca.crt", "revoked-file": "revoked"}
    options = [f"--{name}={authority.folder / file}" for name, file in files.items()]
    pairs = {name: authority.issue(name) for name in ("edge-1", "edge-2")}
    async with serving(f"sqlite:///{tmp_path / 'hub.db'}", *options) as hub, AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(HubAgent(hub.address, name, credentials=authority.credentials(pair)))
            for name, pair in pairs.items()
        ]
        streams = []
        for agent in (first, second):
            await agent.register()
            streams.append(await agent.subscribe())

        authority.renew_hub()
        await until_served(hub, authority)
        await first.heartbeat()
        authority.revoke("edge-1")
        ended = await streams[0].ended(timeout=TIMEOUT)

        for refused in (first.heartbeat, first.register):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await refused()
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await hub.save(content(1))
        await hub.assign("edge-2", 1)
        event = await streams[1].next_of(pb.Event.CONFIG_UPDATE)

    assert ended is grpc.StatusCode.UNAUTHENTICATED
    assert event.config_update.config_version == "api@1"


async def test_a_stranger_at_the_port_leaves_no_line_that_is_not_json(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    options = [f"--tls-cert={authority.folder / 'hub.crt'}", f"--tls-key={authority.folder / 'hub.key'}"]
    async with serving(f"sqlite:///{tmp_path / 'hub.db'}", *options) as hub:
        async with HubAgent(hub.address, "edge-1") as without_tls:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await without_tls.register()
        assert await hub.process.stop() == 0

    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [line for line in hub.process.lines if "event" not in line] == []


async def until_served(hub: RunningHub, authority: Authority) -> None:
    """Wait until the hub shows the certificate of its files."""
    port = int(hub.address.rpartition(":")[2])
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while True:
            if await served_serial(port, authority.certificate) == authority.hub.serial:
                return
            await asyncio.sleep(0.1)


async def test_a_port_that_is_taken_ends_the_second_hub_with_1(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path / 'one.db'}") as hub:
        port = int(hub.address.rpartition(":")[2])
        second = HubProcess(f"sqlite:///{tmp_path / 'two.db'}", "--insecure", listen_grpc=f"127.0.0.1:{port}")
        async with second:
            code = await second.exit_code()

    assert code == 1
    assert any(f"127.0.0.1:{port}" in str(line) for line in second.lines)


@pytest.mark.parametrize("seed", range(4))
async def test_fuzzed_messages_never_break_the_hub(tmp_path: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # reproducible
    async with serving(f"sqlite:///{tmp_path / 'hub.db'}") as hub, HubAgent(hub.address, "edge-1") as agent:
        await agent.register()
        async with grpc.aio.insecure_channel(hub.address) as channel:
            statuses = {await call(channel, random, agent.token) for _ in range(500)}
        await agent.register()
        await agent.heartbeat()
        failures = [line for line in hub.process.lines if line.get("event") == "call.failed"]
        assert await hub.process.stop() == 0

    assert {grpc.StatusCode.OK} < statuses <= EXPECTED_STATUSES
    assert not failures


async def call(channel: grpc.aio.Channel, random: Random, token: str) -> grpc.StatusCode:
    """Call a random method with a message that is almost right, and return the status."""
    method = random.choice(sorted(REQUESTS))
    request = REQUESTS[method]()
    fill(request, random)
    if random.random() < 0.7:
        # Another Register of edge-1 would end the session that all these calls use.
        instance_id = "edge-2" if method == "Register" else "edge-1"
        for name, value in (("instance_id", instance_id), ("token", token)):
            if name in request.DESCRIPTOR.fields_by_name:
                setattr(request, name, value)
    data = bytearray(request.SerializeToString())
    if random.random() < 0.3 and data:
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
    path = f"/{SERVICE.full_name}/{method}"
    if method == "Subscribe":
        return await first_status(channel.unary_stream(path), bytes(data))
    # So would leaving on purpose.
    if method == "Deregister":
        data = bytearray(pb.DeregisterRequest(instance_id="other", token=token).SerializeToString())
    unary: Any = channel.unary_unary(path)
    status: grpc.StatusCode = await unary(bytes(data), timeout=60).code()
    return status


async def first_status(method: Any, data: bytes) -> grpc.StatusCode:
    """Return the status of a stream that was refused, or OK once it is open."""
    stream = method(data, timeout=60)
    await stream.initial_metadata()
    status: grpc.StatusCode = await stream.code() if stream.done() else grpc.StatusCode.OK
    stream.cancel()
    return status


def fill(message: Any, random: Random, depth: int = 0) -> None:
    """Give random fields random values, extreme ones included."""
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), 7]
    large_numbers = [*numbers, 2**63 - 1, -(2**63), 10**12]
    texts = ["", "edge-1", "api@1", "\0", "é" * 50, "x" * 3000, "..", "a/b", "\u202e"]
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name).update({random.choice(texts): random.choice(texts) for _ in range(3)})
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            for each in [inner.add() for _ in range(3)] if field.is_repeated else [inner]:
                fill(each, random, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(random.choice(texts) for _ in range(3))
        elif field.enum_type is not None:
            setattr(message, field.name, random.choice([0, 1, 3, 99]))
        elif field.cpp_type == field.CPPTYPE_STRING:
            setattr(message, field.name, random.choice(texts))
        elif field.cpp_type == field.CPPTYPE_BOOL:
            setattr(message, field.name, random.random() < 0.5)
        elif field.cpp_type == field.CPPTYPE_DOUBLE:
            setattr(message, field.name, random.choice([0.0, -1.0, float("nan"), float("inf"), 1e308]))
        elif field.cpp_type == field.CPPTYPE_INT64:
            setattr(message, field.name, random.choice(large_numbers))
        else:
            setattr(message, field.name, random.choice(numbers))

"""`sentinel agent` as a process, beside a real proxy, with a real hub."""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bench.processes import memory
from sentinel.core.agent.apply import Step
from sentinel.core.agent.state import AgentState
from tests.support.hub.planted_secrets import PLANTED, planted_certificate
from tests.support.missing_service import skip_or_fail
from tests.support.processes.agent import AgentProcess, Host
from tests.support.processes.hub import RunningHub, serving
from tests.support.tcp_proxy import TcpProxy
from tools.services.server import free_port

INTERVAL = "--set=heartbeat_interval=1s"
THRESHOLD = "--set=offline_threshold=5s"
UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "sentinel-agent.service"
MORTAL = ("-m", "tests.e2e.mortal_agent")
SESSION_STEPS = ("hub.registered", "stream.opened", "config.fetched", "apply.done", "heartbeat.answered")
UPSTREAM = """
upstreams { upstream "api" { target "127.0.0.1:9"; tls { cert secret="api-cert"; key secret="api-key" } } }
"""
CRASH_POINTS = range(3, 60)
"""Writes of an agent, of which the first two are at its start. A deployment needs about 30."""
APPLYING = (Step.RENDERING, Step.TESTING, Step.WRITING, Step.RELOADING, Step.CHECKING)
"""The steps of an apply that succeeds."""
RESTRICTED = ("-m", "tests.e2e.system_calls")


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hub.db'}"


@pytest.fixture
async def hub(database_url: str) -> AsyncIterator[RunningHub]:
    async with serving(database_url, INTERVAL, THRESHOLD) as running:
        yield running


@pytest.fixture
async def network(hub: RunningHub) -> AsyncIterator[TcpProxy]:
    """The network between the agent and the hub."""
    async with TcpProxy("127.0.0.1", int(hub.address.rpartition(":")[2])) as proxy:
        yield proxy


async def test_an_assigned_version_is_applied_and_reported(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    await hub.save(host.content("first"), host.content("second"))
    async with host.serving(), host.agent() as agent:
        online = await hub.until_instance("edge-1", state="online")
        assert (online["name"], online["labels"], online["sentinel_version"] != "") == (
            "Edge 1",
            {"zone": "a"},
            True,
        )

        await hub.assign("edge-1", 1)
        await host.until_name("first")
        synced = await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
        assert synced["current"]["version"] == "api@1"
        assert (await agent.readiness())[0] == 200
        assert await agent.agent_metric("in_sync") == 1

        await hub.assign("edge-1", 2)
        await host.until_name("second")
        await hub.until_instance("edge-1", in_sync=True, assigned="api@2")
        assert await agent.stop() == 0
        assert await host.name() == "second"
    assert (await hub.call("GET", "instances/edge-1"))["state"] == "online"


async def test_sessions_take_their_steps_in_order(database_url: str, tmp_path: Path) -> None:
    # Heartbeats are so rare that the first one waits until the version is applied.
    async with (
        serving(database_url, "--set=heartbeat_interval=10s") as hub,
        TcpProxy("127.0.0.1", int(hub.address.rpartition(":")[2])) as network,
    ):
        host = Host(tmp_path / "host", hub=f"127.0.0.1:{network.port}")
        del host.settings["instance"]["id"]
        await hub.save(host.content("first"), host.content("second"))
        async with host.serving():
            async with host.agent() as agent:
                made_id = (await agent.until_event("service.starting"))["instance"]
                await hub.until_instance(made_id, state="online")
            await hub.assign(made_id, 1)
            async with host.agent(log={"level": "debug"}) as agent:
                await agent.until_event("heartbeat.answered")
                first = _steps(agent, since=0)
                registered = (await hub.call("GET", "instances"))["total"]

                await network.cut()
                await agent.until_event("hub.unavailable")
                await hub.assign(made_id, 2)
                since = len(agent.lines)
                await network.accept()
                await agent.until_event("stream.opened", since=since)
                await agent.until_event("heartbeat.answered", since=since)
                again = _steps(agent, since=since)
            assert await host.name() == "second"

    assert registered == 1
    assert first == [*SESSION_STEPS]
    assert again[:3] == ["hub.registered", "config.fetched", "apply.done"]
    assert {*again[3:5]} == {"stream.opened", "heartbeat.answered"}


async def test_a_content_that_is_not_what_its_hash_says_is_not_applied(
    hub: RunningHub, database_url: str, tmp_path: Path
) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    await hub.save(host.content("first"))
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE hub_config_versions SET content = CAST(content || '// damaged' AS BLOB)")
    async with host.serving(), host.agent() as agent:
        await hub.until_instance("edge-1", state="online")
        await hub.assign("edge-1", 1)
        failed = await agent.until_event("apply.failed")
        await hub.until_instance("edge-1", message=f"api@1: {failed['reason']}", in_sync=False)

        assert failed["reason"].startswith("hash mismatch: expected ")
        assert await host.name() == "initial"


async def test_a_killed_hub_changes_nothing_for_the_proxy(database_url: str, tmp_path: Path) -> None:
    port = free_port()
    host = Host(tmp_path / "host", hub=f"127.0.0.1:{port}")
    async with host.serving(), host.agent() as agent:
        async with serving(database_url, INTERVAL, port=port) as hub:
            await hub.save(host.content("first"), host.content("second"))
            await hub.until_instance("edge-1", state="online")
            await hub.assign("edge-1", 1)
            await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
            since = agent.lines.index(await agent.until_event("hub.connected")) + 1
            hub.process.send_signal(signal.SIGKILL)
            await hub.process.exit_code()
        await agent.until_event("hub.unavailable", since=since)
        assert await host.name() == "first"

        async with serving(database_url, INTERVAL, port=port) as hub:
            await agent.until_event("hub.connected", since=since)
            await hub.assign("edge-1", 2)
            await hub.until_instance("edge-1", in_sync=True, assigned="api@2")
            assert await host.name() == "second"
    absences = [line for line in agent.lines if line["event"] == "hub.unavailable"]
    assert len(absences) <= 2  # before the first hub, and before the second one


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("health", "ends", "expected"),
    [("/health", "completed", {*APPLYING}), ("/elsewhere", "failed", {*Step} - {Step.ENDED})],
)
async def test_an_agent_killed_during_deployments_says_afterwards_how_they_ended(
    database_url: str, tmp_path: Path, health: str, ends: str, expected: set[Step]
) -> None:
    async with serving(database_url, INTERVAL) as hub:
        host, steps = Host(tmp_path / "host", hub=hub.address), set[Step]()
        host.settings["proxy"]["test_command"] = ["grep", "listeners", "{config}"]
        await hub.save(*(host.content(f"version-{point}", health=health) for point in CRASH_POINTS))
        async with host.serving():
            async with host.agent():
                await hub.until_instance("edge-1", state="online")
            for version, point in enumerate(CRASH_POINTS, 1):
                async with host.agent(program=(*MORTAL, str(point))) as agent:
                    await agent.until_event("hub.connected")
                    deployment = await hub.call(
                        "POST",
                        "deployments",
                        {
                            "config_id": "api",
                            "version": version,
                            "targets": {"ids": ["edge-1"]},
                            "strategy": "all_at_once",
                        },
                    )
                    if not await _is_killed(agent, hub, deployment["id"]):
                        break
                state = (host.folder / "state" / "state.json").read_bytes()
                apply = msgspec.json.decode(state, type=AgentState).apply
                steps |= set() if apply is None else {apply.step}

                async with host.agent():
                    assert await _until_over(hub, deployment["id"]) == ends
                    if ends == "completed":
                        await hub.until_instance("edge-1", in_sync=True, assigned=f"api@{version}", state="online")
                        assert await host.name() == f"version-{point}"
                    else:
                        await hub.until_instance("edge-1", assigned=None, state="online")
                        await host.until_name("initial")  # a restart may try the version once more
        assert steps == expected


async def test_what_was_measured_while_the_network_was_cut_is_delivered(
    hub: RunningHub, network: TcpProxy, tmp_path: Path
) -> None:
    host = Host(tmp_path / "host", hub=f"127.0.0.1:{network.port}")
    async with host.serving(), host.agent() as agent:
        await hub.until_instance("edge-1", state="online")
        await network.cut()
        began = datetime.now(UTC)
        await hub.until_instance("edge-1", state="offline")
        for _ in range(5):
            assert await host.name() == "initial"
        # The next sample may have been begun before the last request; the one after it has all of them.
        enough = max(5, await agent.agent_metric("buffered_samples") + 2)
        async with asyncio.timeout(90):
            while await agent.agent_metric("buffered_samples") < enough:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.2)
        ended = datetime.now(UTC)
        await network.accept()
        await hub.until_instance("edge-1", state="online")

        delivered: list[int] = []
        """The requests of the samples that were taken meanwhile."""
        async with asyncio.timeout(90):
            while len(delivered) < 4 or max(delivered) < 5:
                await asyncio.sleep(0.2)
                items = (await hub.call("GET", "instances/edge-1/metrics"))["items"]
                times = [datetime.fromisoformat(item["time"]) for item in items]
                delivered = [
                    item["requests_total"]
                    for item, time in zip(items, times, strict=True)
                    if began <= time <= ended
                ]
        assert times == sorted(times)


async def test_an_agent_without_its_hub_puts_the_last_good_version_back(database_url: str, tmp_path: Path) -> None:
    port = free_port()
    host = Host(tmp_path / "host", hub=f"127.0.0.1:{port}")
    async with serving(database_url, INTERVAL, port=port) as hub:
        await hub.save(host.content("first"))
        async with host.serving(), host.agent() as agent:
            await hub.until_instance("edge-1", state="online")
            await hub.assign("edge-1", 1)
            await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
            await agent.stop()

    host.config.unlink()
    async with host.agent() as agent:
        await agent.until_event("hub.unavailable")
        assert host.config.read_text() == host.content("first")
        async with host.serving():
            assert await host.name() == "first"


@pytest.mark.parametrize(
    "behavior",
    [{"mode": "shutdown"}, {"mode": "keep_running", "max_offline_duration": "2s"}],
    ids=["shutdown", "max_offline_duration"],
)
async def test_proxy_and_agent_stop_without_a_hub(
    hub: RunningHub, network: TcpProxy, tmp_path: Path, behavior: dict[str, str]
) -> None:
    host = Host(tmp_path / "host", hub=f"127.0.0.1:{network.port}")
    offline = host.settings["offline_behavior"] | behavior
    async with host.serving() as proxy, host.agent(offline_behavior=offline) as agent:
        await hub.until_instance("edge-1", state="online")
        await network.cut()

        assert await agent.exit_code() == 0
        assert await proxy.exit_code() == 0


async def test_mode_degraded_shows_in_readiness_and_the_next_heartbeat(
    hub: RunningHub, network: TcpProxy, tmp_path: Path
) -> None:
    host = Host(tmp_path / "host", hub=f"127.0.0.1:{network.port}")
    offline = host.settings["offline_behavior"] | {"mode": "degraded"}
    async with host.serving(), host.agent(offline_behavior=offline) as agent:
        await hub.until_instance("edge-1", state="online")
        await network.cut()
        await agent.until_event("hub.unavailable")
        status, body = await agent.readiness()
        assert (status, body["checks"]["hub"]["status"]) == (503, "error")

        await network.accept()
        await agent.until_event(
            "hub.connected", since=agent.lines.index(await agent.until_event("hub.unavailable"))
        )
        assert (await agent.readiness())[0] == 200
        await hub.process.until_event("instance.state", instance="edge-1", after="degraded")
        await hub.until_instance("edge-1", state="online", message="")
        assert await host.name() == "initial"


async def test_an_agent_that_was_offline_takes_a_deployed_version(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    await hub.save(host.content("first"), host.content("second"))
    async with host.serving():
        async with host.agent():
            await hub.until_instance("edge-1", state="online")
            await hub.assign("edge-1", 1)
            await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
        await hub.until_instance("edge-1", state="offline")

        body = {"config_id": "api", "version": 2, "targets": {"ids": ["edge-1"]}, "strategy": "rolling"}
        deployment = await hub.call("POST", "deployments", body)
        await hub.process.until_event("deployment.state", deployment=deployment["id"], state="completed")
        before = await host.name()
        async with host.agent():
            await hub.until_instance("edge-1", in_sync=True, assigned="api@2")

        assert (await hub.call("GET", f"deployments/{deployment['id']}"))["counts"] == {"skipped": 1}
        assert (before, await host.name()) == ("first", "second")


async def test_a_drained_instance_stops_leaves_and_exits(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    async with host.serving() as proxy, host.agent() as agent:
        await hub.until_instance("edge-1", state="online")
        await hub.call("POST", "instances/edge-1/drain", {"reason": "replaced"})

        assert await agent.exit_code() == 0
        assert await proxy.exit_code() == 0
        await hub.until_instance("edge-1", state="removed")


async def test_the_unit_of_systemd_permits_what_an_agent_does(hub: RunningHub, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("systemd-analyze is not installed")
    host = Host(tmp_path / "host", hub=hub.address)
    host.settings["proxy"]["test_command"] = ["sentinel", "proxy", "--test", "-c", "{config}"]
    await hub.save(host.content("first"))
    async with host.serving(), host.agent(program=(*RESTRICTED, str(UNIT))) as agent:
        await hub.until_instance("edge-1", state="online")
        await hub.assign("edge-1", 1)
        await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
        await hub.call("POST", "instances/edge-1/drain", {"reason": "replaced"})

        assert await agent.exit_code() == 0


async def test_an_agent_that_deregisters_leaves_its_proxy(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    async with host.serving(), host.agent(deregister_on_shutdown=True) as agent:
        await hub.until_instance("edge-1", state="online")
        assert await agent.stop() == 0
        await agent.until_event("hub.deregistered")

        assert (await hub.call("GET", "instances/edge-1"))["state"] == "draining"
        assert await host.name() == "initial"


async def test_a_proxy_that_restarts_shows_as_new_counters(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    async with host.agent():
        await hub.until_instance("edge-1", state="degraded")
        async with host.serving():
            for _ in range(20):
                await host.until_name("initial")
            await _until_requests(hub, at_least=20)
        async with host.serving():
            await _until_requests(hub, at_most=10)

        samples = (await hub.call("GET", "instances/edge-1/metrics"))["items"]
        assert min(sample["requests_total"] for sample in samples) >= 0
        assert all(sample["latency_p99_ms"] >= sample["latency_p50_ms"] >= 0 for sample in samples)


async def test_planted_secrets_are_only_in_private_files(database_url: str, tmp_path: Path) -> None:
    host, secrets, key_file = Host(tmp_path / "host", hub=""), planted_certificate(), tmp_path / "secrets.key"
    key_file.write_bytes(base64.b64encode(bytes(range(32))))
    async with serving(database_url, INTERVAL, THRESHOLD, f"--secrets-key-file={key_file}") as hub:
        for name, value in secrets.items():
            await hub.call("PUT", f"secrets/{name}", {"value": value})
        await hub.save(host.content("good") + UPSTREAM, host.content("bad", health="/elsewhere") + UPSTREAM)
        host.settings["hub"]["address"] = hub.address
        async with host.serving() as proxy, host.agent(log={"level": "debug"}) as agent:
            await hub.until_instance("edge-1", state="online")
            await hub.assign("edge-1", 1)
            await host.until_name("good")
            await hub.until_instance("edge-1", in_sync=True, assigned="api@1")
            await hub.assign("edge-1", 2)
            failed = await agent.until_event("apply.failed")
            shown = [await agent.metrics_text(), str(await hub.call("GET", "instances/edge-1"))]
            assert await agent.stop() == 0

    private = [path for path in host.folder.rglob("*") if path.is_file() and PLANTED in path.read_text()]
    assert {path.read_text() for path in private} == set(secrets.values())
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert all(path.is_relative_to(host.folder / "state" / "secrets") for path in private)
    assert "health check failed after 3 attempts" in str(failed)
    assert not [text[:200] for text in (*shown, str(agent.lines), str(proxy.lines)) if PLANTED in text]


async def test_an_agent_stays_within_its_memory(hub: RunningHub, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", hub=hub.address)
    await hub.save(*(host.content(f"version-{number}") for number in range(1, 6)))
    async with host.serving(), host.agent() as agent:
        await hub.until_instance("edge-1", state="online")
        for number in range(1, 6):
            await hub.assign("edge-1", number)
            await hub.until_instance("edge-1", in_sync=True, assigned=f"api@{number}")

        assert memory(agent.pid).resident <= 64


def _steps(agent: AgentProcess, *, since: int) -> list[str]:
    """Return what happened in the session, in order."""
    return [line["event"] for line in agent.lines[since:] if line.get("event") in SESSION_STEPS]


async def _is_killed(agent: AgentProcess, hub: RunningHub, deployment_id: str) -> bool:
    """Wait until the agent is killed, or the deployment is over before that."""
    killed = asyncio.create_task(agent.exit_code(timeout=240))
    over = asyncio.create_task(_until_over(hub, deployment_id))
    try:
        await asyncio.wait({killed, over}, return_when=asyncio.FIRST_COMPLETED)
        if not killed.done():
            await over
            return False
        assert killed.result() == -signal.SIGKILL
        return True
    finally:
        killed.cancel()
        over.cancel()
        await asyncio.gather(killed, over, return_exceptions=True)


async def _until_over(hub: RunningHub, deployment_id: str) -> str:
    """Return how a deployment has ended."""
    async with asyncio.timeout(240):
        while True:
            state = str((await hub.call("GET", f"deployments/{deployment_id}"))["state"])
            if state not in ("pending", "running"):
                return state
            await asyncio.sleep(0.1)


async def _until_requests(hub: RunningHub, *, at_least: int = 0, at_most: int = 10**9) -> None:
    async with asyncio.timeout(timedelta(seconds=90).total_seconds()):
        while True:
            instance = await hub.call("GET", "instances/edge-1")
            metrics = instance["metrics"]
            if metrics is not None and at_least <= metrics["requests_total"] <= at_most:
                return
            await asyncio.sleep(0.1)

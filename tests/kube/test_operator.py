"""The operator as a process: a real API server, a real fleet API, events in a real queue."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from sentinel.core.operator.status import ConditionType, ConfigStatus, StatusReason
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from tests.kube.crds import install_crd
from tests.kube.operator_world import LEASE, NAMESPACE, OperatorWorld, operator_world
from tests.support.processes.operator import OperatorProcess
from tests.support.tcp_proxy import TcpProxy
from tools.services.kube_apiserver import KubeApiServer, KubeClient


@pytest.fixture
async def world(
    kubeconfig: Path, sentinel_config_crd: None, namespace: str, rabbitmq_url: str, tmp_path: Path
) -> AsyncIterator[OperatorWorld]:
    async with operator_world(
        kubeconfig=kubeconfig, namespace=namespace, rabbitmq_url=rabbitmq_url, directory=tmp_path
    ) as world:
        yield world


@pytest.fixture
async def private_world(
    private_kube_apiserver: KubeApiServer, rabbitmq_url: str, tmp_path: Path
) -> AsyncIterator[OperatorWorld]:
    """A world on a server that the test may restart and compact."""
    namespace = f"test-{secrets.token_hex(6)}"
    await asyncio.to_thread(install_crd, KubeClient(private_kube_apiserver.admin))
    async with operator_world(
        kubeconfig=private_kube_apiserver.kubeconfig,
        namespace=namespace,
        rabbitmq_url=rabbitmq_url,
        directory=tmp_path,
    ) as world:
        await world.api.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        yield world


async def test_a_config_is_created_edited_broken_fixed_and_deleted(world: OperatorWorld) -> None:
    cluster = await world.fleet.create("one", labels={"region": "east"})
    async with OperatorProcess(world.kubeconfig, f"--namespace={world.namespace}") as operator:
        await world.create("clusters", shardSelector={"matchLabels": {"region": "east"}})
        await world.until(lambda: world.times(cluster["id"]))
        await world.until_reasons("clusters", Accepted="True/Valid", Running="True/Polling")
        assert world.received[0].data == {
            "resourceType": "clusters",
            "resourceId": cluster["id"],
            "reason": "generation-changed",
        }

        west = await world.fleet.create("two", labels={"region": "west"})
        await world.edit("clusters", shardSelector={"matchLabels": {"region": "west"}})
        await world.until(lambda: world.times(west["id"]))
        await operator.until_event("config.reloaded", config="clusters")

        await world.edit("clusters", messageData={"id": "{{.id"})
        await world.until_reasons("clusters", Accepted="False/Invalid", Running="True/Polling")
        before = len(world.times(west["id"]))
        await world.until(lambda: len(world.times(west["id"])) > before)

        await world.edit("clusters", messageData={"id": ".id"})
        await world.until_reasons("clusters", Accepted="True/Valid", Running="True/Polling")
        await world.until(lambda: world.received[-1].data == {"id": west["id"]})

        await world.delete("clusters")
        await operator.until_event("config.stopped", config="clusters")
        stopped = len(world.received)
        await world.fleet.create("three", labels={"region": "west"})
        await world.create("others", shardSelector={"matchLabels": {"region": "none"}})
        await world.until_reasons("others", Degraded="False/Healthy")
        assert len(world.received) == stopped
        assert {"Started", "Reloaded", "Invalid", "Stopped"} <= set(await world.event_reasons())
        assert await operator.stop() == 0


async def test_reports_of_adapters_move_the_next_event(world: OperatorWorld) -> None:
    """Seed 002's integration test: an event is due when the backoff since the last report is over."""
    cluster = await world.fleet.create("one")
    await world.create("clusters", generationCheck=False, backoffNotReady="10s")
    async with OperatorProcess(world.kubeconfig, f"--namespace={world.namespace}"):
        await world.until(lambda: len(world.times(cluster["id"])) == 1)

        reported = asyncio.get_running_loop().time()
        await world.fleet.report(f"clusters/{cluster['id']}", "validation", available="False")
        await world.until(lambda: len(world.times(cluster["id"])) == 2)

        assert world.times(cluster["id"])[1] - reported >= 10 - 0.1
        assert world.received[-1].data["reason"] == "backoff-expired"

        # A ready resource has the longer backoff, so nothing is due while another one gets its events.
        await world.fleet.report(f"clusters/{cluster['id']}", "validation")
        other = await world.fleet.create("two")
        await world.until(lambda: len(world.times(other["id"])) == 2)
        assert len(world.times(cluster["id"])) == 2


async def test_a_named_config_that_is_absent_is_not_ready(world: OperatorWorld) -> None:
    arguments = (f"--namespace={world.namespace}", "--config=clusters")
    async with OperatorProcess(world.kubeconfig, *arguments) as operator:
        await operator.until_event("reflector.listed")
        status, body = await operator.readiness()
        assert (status, body["checks"]["sentinelconfig"]["status"]) == (503, "error")
        assert (await operator.liveness())[0] == 200

        await world.create("clusters")
        await operator.until_event("cycle.done")

        await world.until_reasons("clusters", Degraded="False/Healthy")
        assert (await operator.readiness())[0] == 200


async def test_a_status_is_stored_as_it_is_written(world: OperatorWorld) -> None:
    """Otherwise the operator would take each of its own writes for someone else's."""
    await world.create("clusters")
    now = datetime.now(UTC)
    status = (
        ConfigStatus()
        .observed(1)
        .with_condition(ConditionType.ACCEPTED, StatusReason.VALID, "", is_true=True, now=now)
        .with_condition(ConditionType.RUNNING, StatusReason.STOPPED, "why", is_true=False, now=now)
    )

    for written in (status, status.polled(at=now, resources=3, published=0)):
        await world.api.merge_patch(
            SENTINEL_CONFIG,
            "clusters",
            {"status": written.encode()},
            namespace=world.namespace,
            subresource="status",
        )

        assert await world.status("clusters") == written.encode()


async def test_a_restarted_api_server_stops_no_pulse(
    private_world: OperatorWorld, private_kube_apiserver: KubeApiServer
) -> None:
    world = private_world
    cluster = await world.fleet.create("one")
    await world.create("clusters", backoffNotReady="1s")
    async with OperatorProcess(world.kubeconfig, f"--namespace={world.namespace}") as operator:
        await world.until(lambda: world.times(cluster["id"]))

        await asyncio.to_thread(private_kube_apiserver.kill)
        during = len(world.received)
        await world.until(lambda: len(world.received) >= during + 3)
        await asyncio.to_thread(private_kube_apiserver.start)

        await world.edit("clusters", pageSize=50)
        await operator.until_event("config.reloaded", timeout=60)
        await world.until_reasons("clusters", Accepted="True/Valid")


async def test_a_deletion_in_a_gap_of_the_watch_is_noticed(
    private_world: OperatorWorld, private_kube_apiserver: KubeApiServer, tmp_path: Path
) -> None:
    world = private_world
    await world.create("clusters")
    await world.create("others", shardSelector={"matchLabels": {"region": "west"}})
    url = urlsplit(private_kube_apiserver.url)
    async with TcpProxy("127.0.0.1", url.port or 0) as proxy:
        kubeconfig = tmp_path / "through-proxy"
        through = msgspec.structs.replace(private_kube_apiserver.admin, url=f"https://127.0.0.1:{proxy.port}")
        kubeconfig.write_bytes(through.kubeconfig())
        async with OperatorProcess(kubeconfig, f"--namespace={world.namespace}") as operator:
            await operator.until_event("config.started", config="clusters")
            await world.until_reasons("others", Degraded="False/Healthy")

            await proxy.cut()
            await world.delete("clusters")
            for size in range(10, 20):
                await world.edit("others", pageSize=size)
            await asyncio.to_thread(private_kube_apiserver.compact)
            await proxy.accept()

            await operator.until_event("config.stopped", config="clusters", timeout=60)
            await operator.until_event("reflector.listed", reason="expired")
            await operator.until_event("config.reloaded", config="others")


async def cycles(operator: OperatorProcess, count: int) -> None:
    """Wait for this many more cycles."""
    for _ in range(count):
        await operator.until_event("cycle.done", since=len(operator.lines))


async def test_a_killed_leader_is_replaced_and_repeats_nothing(world: OperatorWorld) -> None:
    clusters = [await world.fleet.create(f"cluster-{number}") for number in range(10)]
    await world.create("clusters", backoffNotReady="1h")
    arguments = (f"--namespace={world.namespace}", "--leader-elect")
    async with (
        OperatorProcess(world.kubeconfig, *arguments) as leader,
        OperatorProcess(world.kubeconfig, *arguments) as follower,
    ):
        gained = [
            asyncio.create_task(each.until_event("leadership.gained", timeout=60)) for each in (leader, follower)
        ]
        done, _ = await asyncio.wait(gained, return_when=asyncio.FIRST_COMPLETED)
        if gained[0] not in done:
            leader, follower = follower, leader
        await world.until(lambda: all(world.times(cluster["id"]) for cluster in clusters))
        # The follower has to see a renewal. It looks at the lease every two seconds, and polls twice a second.
        await cycles(follower, 8)
        lease = await world.api.get(LEASE, "sentinel-clusters", namespace=world.namespace)
        async with asyncio.timeout(60):
            while lease == await world.api.get(LEASE, "sentinel-clusters", namespace=world.namespace):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await cycles(follower, 8)

        leader.send_signal(signal.SIGKILL)
        await follower.until_event("leadership.gained")
        clusters.append(await world.fleet.create("new"))
        await world.until(lambda: world.times(clusters[-1]["id"]))
        await cycles(follower, 2)
        for task in gained:
            task.cancel()
        await asyncio.wait(gained)

    assert sorted(event.resource_id for event in world.received) == sorted(each["id"] for each in clusters)
    await world.api.get(LEASE, "sentinel-clusters", namespace=world.namespace)

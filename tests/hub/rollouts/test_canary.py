"""Canaries, whose metrics come with heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from sentinel.core.hub.deployment import Canary, Count, Criterion, Metric, Strategy
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.hub.settings import HubSettings
from sentinel.ports.rollout_store import DeploymentRecord
from sentinel.testing.clock import START
from sentinel.testing.database import Fault
from sentinel.testing.hub_agent import HubAgent
from sentinel.web.errors import Conflict
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.deployments import (
    VERSIONS,
    complete,
    create,
    fleet,
    names,
    request,
    rows,
    status,
    until,
    until_over,
)
from tests.support.hub.in_process import SECOND, USER, InProcessHub

CANARY = Canary(instances=Count(1), duration=120 * SECOND, interval=30 * SECOND, min_requests=50)


class Traffic:
    """What proxies measure: every heartbeat they have answered more requests."""

    def __init__(self, agents: list[HubAgent], failed: Mapping[str, int], latency: Mapping[str, float]) -> None:
        self._agents = agents
        self._failed = failed
        self._latency = latency
        self._beats = 0

    async def flow(self, hub: InProcessHub, seconds: int, *, requests: int = 100, interval: int = 10) -> None:
        """Let time pass, with a heartbeat of everyone at each interval."""
        for _ in range(0, seconds, interval):
            self._beats += 1
            for agent in self._agents:
                await agent.heartbeat(
                    metrics=pb.InstanceMetrics(
                        requests_total=requests * self._beats,
                        requests_failed=self._failed.get(agent.instance_id, 0) * self._beats,
                        latency_p99_ms=self._latency.get(agent.instance_id, 10.0),
                    )
                )
            await hub.clock.advance(interval * SECOND)


async def begin(
    hub: InProcessHub,
    canary: Canary = CANARY,
    *,
    failed: Mapping[str, int] | None = None,
    latency: Mapping[str, float] | None = None,
) -> tuple[str, Traffic, list[HubAgent]]:
    """A canary on the first of three instances, which has applied the version."""
    agents = await fleet(hub, *names(3))
    asked = msgspec.structs.replace(request(*names(3)), strategy=Strategy.CANARY, canary=canary)
    deployment_id = await create(hub, asked)
    await complete(agents[0], deployment_id)
    return deployment_id, Traffic(agents, failed or {}, latency or {}), agents


async def test_a_good_canary_is_followed_by_the_others(hub: InProcessHub) -> None:
    deployment_id, traffic, agents = await begin(hub, failed={"edge-1": 1})
    await traffic.flow(hub, 100)
    assert (await rows(hub, deployment_id))["edge-2"] == "waiting"

    await traffic.flow(hub, 40)

    record = await until(hub, deployment_id, lambda record: record.rollout.batch == 2)
    assert record.rollout.state is RolloutState.RUNNING
    for agent in agents[1:]:
        await complete(agent, deployment_id)
    assert status(await until_over(hub, deployment_id)) == (RolloutState.COMPLETED, RollbackState.NONE)


@pytest.mark.parametrize(
    ("criterion", "failed", "latency", "reason"),
    [
        (Criterion(metric=Metric.ERROR_RATE, max=0.05), {"edge-1": 20}, {}, "error_rate 0.2 is above 0.05"),
        (
            Criterion(metric=Metric.LATENCY_P99_MS, max_vs_baseline=1.5),
            {},
            {"edge-1": 40.0},
            "latency_p99_ms 40 is above 15",
        ),
    ],
)
async def test_a_bad_canary_goes_back_at_once(
    hub: InProcessHub,
    criterion: Criterion,
    failed: Mapping[str, int],
    latency: Mapping[str, float],
    reason: str,
) -> None:
    canary = msgspec.structs.replace(CANARY, success_criteria=(criterion,))
    deployment_id, traffic, agents = await begin(hub, canary, failed=failed, latency=latency)

    await traffic.flow(hub, 40)

    record = await until(hub, deployment_id, lambda record: record.rollout.is_terminal)
    assert reason in record.rollout.reason
    await agents[0].ack_deployment(deployment_id, rollback=True)
    await agents[0].report_deployment_status(deployment_id, pb.DeploymentStatusRequest.ROLLED_BACK, rollback=True)
    assert status(await until_over(hub, deployment_id)) == (RolloutState.FAILED, RollbackState.COMPLETED)
    assert await rows(hub, deployment_id) == {"edge-1": "rolled_back", "edge-2": "skipped", "edge-3": "skipped"}


async def test_a_canary_without_traffic_pauses_until_a_user_decides(hub: InProcessHub) -> None:
    deployment_id, traffic, _ = await begin(hub)

    await traffic.flow(hub, 3 * 120 + 30, requests=0)

    record = await until(hub, deployment_id, lambda record: record.rollout.state is RolloutState.PAUSED)
    assert "inconclusive: 0 requests" in record.rollout.reason
    record = await hub.built.rollouts.promote(USER, deployment_id)
    assert record.rollout.batch == 2
    with pytest.raises(Conflict, match="promoted"):
        await hub.built.rollouts.promote(USER, deployment_id)


async def test_samples_that_are_not_written_yet_count() -> None:
    """None ever are."""
    backend = backends.memory(faults=lambda call: Fault.BEFORE_COMMIT if call == "flush" else None)
    canary = msgspec.structs.replace(CANARY, duration=20 * SECOND, interval=20 * SECOND)
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("api", *VERSIONS)
        deployment_id, traffic, _ = await begin(hub, canary)

        await traffic.flow(hub, 30)

        record = await until(hub, deployment_id, lambda record: record.rollout.verdict is not None)
        assert record.rollout.batch == 2
        assert await hub.store.metrics("edge-1", since=START, limit=1) == []


async def test_a_canary_may_send_heartbeats_as_seldom_as_the_hub_asks_for() -> None:
    settings = HubSettings(heartbeat_interval=120 * SECOND, offline_threshold=360 * SECOND)
    canary = msgspec.structs.replace(CANARY, duration=480 * SECOND)
    async with InProcessHub(settings=settings) as hub:
        await hub.save_versions("api", *VERSIONS)
        deployment_id, traffic, _ = await begin(hub, canary)

        await traffic.flow(hub, 600, interval=120)

        await until(hub, deployment_id, lambda record: record.rollout.batch == 2)


async def test_a_canary_that_was_silent_in_between_is_inconclusive(hub: InProcessHub) -> None:
    deployment_id, traffic, agents = await begin(hub, msgspec.structs.replace(CANARY, duration=240 * SECOND))
    await traffic.flow(hub, 60)
    silent = Traffic(agents[1:], {}, {})
    await silent.flow(hub, 120, requests=0)

    await traffic.flow(hub, 70)

    record = await until(hub, deployment_id, lambda record: _extensions(record) == 1)
    assert record.rollout.verdict is not None
    assert record.rollout.verdict.reason == "metrics are missing of edge-1"


def _extensions(record: DeploymentRecord) -> int:
    wait = record.rollout.canary_wait
    return 0 if wait is None else wait.extensions

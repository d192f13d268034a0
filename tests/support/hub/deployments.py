"""Deployments in tests of the hub: what is asked for, agents that do it, and waiting for the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from sentinel.core.hub.deployment import (
    Canary,
    Count,
    OfflinePolicy,
    Request,
    Rolling,
    Strategy,
    Targets,
)
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.core.labels import parse
from sentinel.ports.rollout_store import DeploymentRecord
from sentinel.testing.hub_agent import Behavior, EventStream, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import USER, InProcessHub

TIMEOUT = timedelta(seconds=90)
"""Tells a deployment that goes on, on a busy machine, from one that hangs."""
NO_DELAY = timedelta(0)
OVER = (RollbackState.NONE, RollbackState.COMPLETED, RollbackState.FAILED)
States = pb.DeploymentStatusRequest


def request(
    *ids: str,
    selector: str | None = None,
    version: int = 2,
    strategy: Strategy = Strategy.ROLLING,
    size: int = 1,
    threshold: int = 1,
    delay: timedelta = NO_DELAY,
    rolling: Rolling | None = None,
    canary: Canary | None = None,
    offline: OfflinePolicy = OfflinePolicy.LATER,
    queue: bool = False,
) -> Request:
    """A deployment of a version of `api`, without delays between batches."""
    targets = Targets(ids=ids) if selector is None else Targets(selector=parse(selector))
    return Request(
        config_id="api",
        version=version,
        targets=targets,
        strategy=strategy,
        offline=offline,
        queue=queue,
        rolling=rolling or Rolling(batch_size=Count(size), failure_threshold=Count(threshold), batch_delay=delay),
        canary=canary or Canary(),
    )


def names(count: int) -> list[str]:
    return [f"edge-{number}" for number in range(1, count + 1)]


async def fleet(hub: InProcessHub, *ids: str, running: str | None = "api@1", **options: Any) -> list[HubAgent]:
    """Agents with a session that run this version."""
    agents = []
    for instance_id in ids:
        agent = await hub.registered(instance_id, **options)
        if running is not None:
            await hub.assign(running, instance_id)
            await agent.fetch()
        await agent.heartbeat()
        agents.append(agent)
    return agents


async def create(hub: InProcessHub, asked: Request) -> str:
    return (await hub.built.rollouts.create(USER, asked, key=None)).id


async def until(
    hub: InProcessHub, deployment_id: str, reached: Callable[[DeploymentRecord], bool]
) -> DeploymentRecord:
    """Wait until a deployment has come so far."""
    async with asyncio.timeout(TIMEOUT.total_seconds()), hub.store.wakeups() as appended:
        while True:
            appended.clear()
            found = await hub.store.deployment(deployment_id)
            assert found is not None
            if reached(found):
                return found
            await appended.wait()


async def until_over(hub: InProcessHub, deployment_id: str) -> DeploymentRecord:
    return await until(hub, deployment_id, lambda record: record.rollout.is_over)


def status(record: DeploymentRecord) -> tuple[RolloutState, RollbackState]:
    return record.rollout.state, record.rollout.rollback


async def rows(hub: InProcessHub, deployment_id: str) -> Mapping[str, str]:
    """The states of all targets."""
    found = await hub.store.deployment_rows(deployment_id, limit=1_000)
    return {each.row.instance_id: str(each.row.state) for each in found}


async def assigned(hub: InProcessHub, *ids: str) -> list[str]:
    """What is assigned to instances."""
    found = await hub.store.instances_by_id(ids)
    assignments = (found[each].sync.assignment for each in ids)
    return ["" if each is None else str(each.version) for each in assignments]


async def told(events: EventStream) -> pb.DeploymentEvent:
    """Return the next deployment that an agent is told of."""
    return (await events.next_of(pb.Event.DEPLOYMENT)).deployment


async def complete(agent: HubAgent, deployment_id: str) -> str:
    """Do what the deployment wants, as an agent does. Returns the next action."""
    await agent.ack_deployment(deployment_id)
    fetched = await agent.get_config()
    agent.running_version, agent.running_content = fetched.version, fetched.content
    return (await agent.report_deployment_status(deployment_id, States.COMPLETED)).next_action


async def go_back(agent: HubAgent, deployment_id: str) -> str:
    """Go back to what ran before, as an agent does. Returns the next action."""
    await agent.ack_deployment(deployment_id, rollback=True)
    fetched = await agent.get_config()
    agent.running_version, agent.running_content = fetched.version, fetched.content
    answer = await agent.report_deployment_status(deployment_id, States.ROLLED_BACK, rollback=True)
    return answer.next_action


@asynccontextmanager
async def running(
    agents: Sequence[HubAgent], behaviors: Mapping[str, Behavior] | None = None
) -> AsyncIterator[None]:
    """Let agents live by themselves, each with its behavior."""
    behaviors = behaviors or {}
    tasks = [asyncio.create_task(each.run(behaviors.get(each.instance_id, Behavior()))) for each in agents]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def logged(hub: InProcessHub, deployment_id: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The types and documents of the events of a deployment."""
    found = await hub.store.deployment_events(deployment_id, after=0, limit=10_000)
    return [(each.type, msgspec.json.decode(each.data)) for each in found]


CONTENT = """
system {
    worker-threads 1
}
listeners {
    listener "http" {
        address "127.0.0.1:8088"
        protocol "http"
    }
}
routes {
    route "health" {
        matches {
            path-prefix "/health"
        }
        service-type "builtin"
        builtin-handler "health"
    }
}
"""
VERSIONS = tuple(CONTENT.replace("/health", path) for path in ("/one", "/two", "/three"))
"""Of the configuration `api`."""

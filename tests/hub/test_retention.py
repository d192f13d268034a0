"""How long the hub keeps what is over: removed instances, metrics and events."""

from __future__ import annotations

from datetime import datetime, timedelta

import grpc
import pytest

from sentinel.hub.settings import HubRetentionSettings, HubSettings
from sentinel.runtime.log import get_logger
from sentinel.runtime.retention import Retention
from sentinel.testing.clock import ManualClock
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
HOUR = timedelta(hours=1)


async def expire(hub: InProcessHub, later: timedelta) -> None:
    """Delete what is old as the server does it, at a time so long after now."""
    clock = ManualClock(hub.clock.now() + later)
    rules = hub.built.component.retention_rules
    await Retention(rules, clock=clock, log=get_logger("test")).expire()


async def sample_times(hub: InProcessHub, start: datetime) -> list[timedelta]:
    return [each.time - start for each in await hub.store.metrics("edge-1", since=start, limit=99)]


async def test_metrics_are_thinned_out_and_then_deleted(hub: InProcessHub) -> None:
    agent = await hub.registered()
    start = hub.clock.now()
    agent.metrics = pb.InstanceMetrics(requests_total=1)
    for _ in range(3):
        await agent.heartbeat()
        await hub.clock.advance(SECOND)
    await hub.built.flusher.flush()

    await expire(hub, HOUR / 2)
    recent = await sample_times(hub, start)
    await expire(hub, 2 * HOUR)
    thinned = await sample_times(hub, start)
    await expire(hub, hub.settings.metrics_retention + HOUR)

    assert recent == [0 * SECOND, SECOND, 2 * SECOND]
    assert thinned == [2 * SECOND]
    assert await sample_times(hub, start) == []


async def test_events_are_deleted_after_their_retention(hub: InProcessHub) -> None:
    await hub.registered()

    await expire(hub, hub.settings.retention.events)
    kept = await hub.store.events(0, limit=9)
    await expire(hub, hub.settings.retention.events + SECOND)

    assert kept
    assert not await hub.store.events(0, limit=9)


async def test_a_removed_instance_is_deleted_after_its_retention(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    await hub.built.instances.drain(USER, "edge-1", "")
    await agent.deregister()

    await expire(hub, hub.settings.removed_retention)
    kept = await hub.store.instance("edge-1")
    await expire(hub, hub.settings.removed_retention + SECOND)

    assert kept is not None
    assert await hub.store.instance("edge-1") is None
    again = await hub.registered(token="other-token")
    assert (await hub.instance()).life.incarnation == 1
    async with refused(PERMISSION_DENIED):
        await again.get_config("api@1")


@pytest.mark.parametrize(
    ("session_ttl", "metrics_retention", "hours"), [(1, 2, 3), (9, 2, 10), (1, 0.5, 2)], ids=str
)
def test_nothing_of_a_removed_instance_outlives_it(
    session_ttl: float, metrics_retention: float, hours: float
) -> None:
    settings = HubSettings(
        session_ttl=session_ttl * HOUR,
        metrics_retention=metrics_retention * HOUR,
        retention=HubRetentionSettings(removed_instances=2 * HOUR),
    )

    assert settings.removed_retention == hours * HOUR

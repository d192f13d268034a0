"""What heartbeats report, change and bring back."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest

from sentinel.core.hub.metrics_samples import Metrics
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import content_hash
from sentinel.hub.settings import HubSettings
from sentinel.ports.hub_store import HubEventType
from sentinel.testing.database import Fault
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

HEALTHY = pb.InstanceStatus(state=pb.InstanceStatus.HEALTHY)
DEGRADED = pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED, message="slow")


async def test_a_heartbeat_without_changes_costs_no_transaction() -> None:
    calls: list[str] = []

    def faults(call: str) -> Fault | None:
        calls.append(call)
        return None

    async with InProcessHub(backend=backends.memory(faults=faults)) as hub:
        agent = await hub.registered()
        calls.clear()

        for _ in range(10):
            await agent.heartbeat()

    assert set(calls) <= {"events", "flush", "silent", "leaving"}


async def test_what_heartbeats_report_is_stored_together(hub: InProcessHub) -> None:
    agent = await hub.registered()
    status = pb.InstanceStatus(
        state=pb.InstanceStatus.HEALTHY, message="serving", uptime_seconds=77, active_connections=5
    )
    await hub.clock.advance(SECOND)

    await agent.heartbeat(status=status, current_config_version="api@3", current_config_hash="ab" * 32)

    instance = await hub.instance()
    assert instance.life.last_seen == hub.clock.now()
    assert instance.life.message == "serving"
    assert (instance.status.uptime_seconds, instance.status.active_connections) == (77, 5)
    assert (instance.status.version, instance.sync.reported_hash) == ("api@3", "ab" * 32)


async def test_heartbeats_are_stored_every_five_seconds(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await agent.heartbeat()
    registered = hub.clock.now()
    await hub.clock.advance(5 * SECOND)

    await agent.heartbeat()
    await hub.clock.advance(4 * SECOND)
    before = await hub.store.instance("edge-1")
    await hub.clock.advance(SECOND)
    after = await hub.store.instance("edge-1")

    assert before is not None
    assert before.life.last_seen == registered
    assert after is not None
    assert after.life.last_seen == registered + 5 * SECOND


async def test_a_version_that_runs_now_is_stored_within_a_second(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    await agent.fetch()
    await hub.clock.advance(5 * SECOND)

    await agent.heartbeat()
    await hub.clock.advance(SECOND)

    stored = await hub.store.instance("edge-1")
    assert stored is not None
    assert stored.sync.is_in_sync
    assert stored.status.version == "api@1"


async def test_heartbeats_are_stored_when_the_hub_stops(hub: InProcessHub) -> None:
    async with InProcessHub(backend=hub.backend, clock=hub.clock) as stopping:
        agent = await stopping.registered()
        await hub.clock.advance(SECOND)
        await agent.heartbeat()

    stored = await hub.store.instance("edge-1")
    assert stored is not None
    assert stored.life.last_seen == hub.clock.now()


async def test_an_assignment_is_repeated_until_its_hash_is_reported(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    first = await agent.heartbeat()
    second = await agent.heartbeat()
    await agent.fetch()
    third = await agent.heartbeat()

    assert first.config_update_available
    assert first.latest_config_version == "api@1"
    (action,) = first.actions
    assert action.type == pb.PendingAction.FETCH_CONFIG
    assert dict(action.params) == {"config_version": "api@1", "config_hash": content_hash('a "1"')}
    assert [each.action_id for each in second.actions] == [action.action_id]
    assert not third.config_update_available
    assert not third.actions


async def test_an_assignment_by_hand_does_not_make_it_deploying(hub: InProcessHub) -> None:
    agent = await hub.registered()

    await hub.assign("api@1")
    await agent.heartbeat()

    assert await hub.state() is State.ONLINE


async def test_the_same_version_assigned_again_is_another_action(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    first = await agent.heartbeat()
    await hub.clock.advance(SECOND)

    await hub.assign("api@1")
    second = await agent.heartbeat()

    assert first.actions[0].action_id != second.actions[0].action_id


async def test_without_an_assignment_anything_may_run(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    await hub.built.instances.unassign(USER, "edge-1")
    response = await agent.heartbeat(current_config_hash="ab" * 32)

    assert not response.config_update_available
    assert response.latest_config_version == ""
    assert not response.actions


@pytest.mark.parametrize(
    ("reported", "state"),
    [
        (pb.InstanceStatus.HEALTHY, State.ONLINE),
        (pb.InstanceStatus.DEGRADED, State.DEGRADED),
        (pb.InstanceStatus.UNHEALTHY, State.DEGRADED),
        (pb.InstanceStatus.UNKNOWN, State.ONLINE),
        (77, State.ONLINE),
    ],
)
async def test_the_reported_state_counts_at_once(hub: InProcessHub, reported: int, state: State) -> None:
    agent = await hub.registered()
    status = pb.InstanceStatus()
    status.MergeFromString(bytes([8, reported]))

    await agent.heartbeat(status=status)

    stored = await hub.store.instance("edge-1")
    assert stored is not None
    assert stored.life.state is state


async def test_users_get_an_event_for_each_change_of_state(hub: InProcessHub) -> None:
    agent = await hub.registered()
    start = await hub.store.newest_event()

    await agent.heartbeat(status=DEGRADED)
    await agent.heartbeat(status=HEALTHY)

    events = await hub.store.events(start, limit=10)
    assert [event.type for event in events] == [HubEventType.INSTANCE_STATE] * 2
    assert b'"state":"degraded"' in events[0].data
    assert b'"message":"slow"' in events[0].data
    assert b'"state":"online"' in events[1].data


async def test_an_offline_instance_that_returns_degraded_has_two_events(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.clock.advance(91 * SECOND)
    assert await hub.state() is State.OFFLINE
    start = await hub.store.newest_event()

    await agent.heartbeat(status=DEGRADED)

    states = [event.data for event in await hub.store.events(start, limit=10)]
    assert [b'"state":"online"' in each for each in states] == [True, False]
    assert b'"state":"degraded"' in states[1]


async def test_a_heartbeat_without_a_status_changes_nothing(hub: InProcessHub) -> None:
    agent = await hub.registered()
    full = pb.InstanceStatus(
        state=pb.InstanceStatus.DEGRADED, message="slow", uptime_seconds=9, active_connections=3
    )
    await agent.heartbeat(status=full)

    await agent.heartbeat(status=None)

    instance = await hub.instance()
    assert (instance.life.state, instance.life.message) == (State.DEGRADED, "slow")
    assert (instance.status.uptime_seconds, instance.status.active_connections) == (9, 3)


async def test_a_heartbeat_without_a_status_brings_back_an_offline_one(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.clock.advance(91 * SECOND)
    assert await hub.state() is State.OFFLINE

    await agent.heartbeat(status=None)

    assert await hub.state() is State.ONLINE


async def test_texts_that_cannot_be_stored_do_not_fail_a_heartbeat(hub: InProcessHub) -> None:
    agent = await hub.registered()
    status = pb.InstanceStatus(
        state=pb.InstanceStatus.HEALTHY,
        message="a\0b\n" + "x" * 5000,
        uptime_seconds=-1,
        active_connections=-1,
    )

    await agent.heartbeat(status=status, current_config_version="no version", current_config_hash="\0" + "x" * 500)

    instance = await hub.instance()
    assert instance.life.message.startswith("a b x")
    assert len(instance.life.message) == 1024
    assert (instance.status.uptime_seconds, instance.status.active_connections) == (0, 0)
    assert instance.status.version == ""
    assert len(instance.sync.reported_hash) == 128


async def test_metrics_become_samples(hub: InProcessHub) -> None:
    agent = await hub.registered()
    agent.metrics = pb.InstanceMetrics(
        requests_total=10,
        requests_failed=1,
        latency_p50_ms=2.5,
        latency_p99_ms=20.0,
        bytes_sent=100,
        bytes_received=50,
    )

    await agent.heartbeat()
    await hub.built.flusher.flush()

    (sample,) = await hub.store.metrics("edge-1", since=hub.clock.now() - SECOND, limit=10)
    assert sample.time == hub.clock.now()
    assert sample.metrics == Metrics(
        requests_total=10,
        requests_failed=1,
        latency_p50_ms=2.5,
        latency_p99_ms=20.0,
        bytes_sent=100,
        bytes_received=50,
    )
    assert (await hub.instance()).status.metrics == sample


async def test_buffered_metrics_are_stored_with_their_own_times(hub: InProcessHub) -> None:
    agent = await hub.registered()
    start = hub.clock.now()
    await hub.clock.advance(60 * SECOND)
    seconds = [10, 20, 10**12, -(10**15), 61]
    buffered = [
        pb.BufferedMetrics(
            timestamp=int(start.timestamp()) + each, metrics=pb.InstanceMetrics(requests_total=abs(each) % 100)
        )
        for each in seconds
    ]

    await agent.heartbeat(buffered=buffered, metrics=pb.InstanceMetrics(requests_total=60))
    await hub.built.flusher.flush()

    samples = await hub.store.metrics("edge-1", since=start, limit=10)
    assert [(each.time - start, each.metrics.requests_total) for each in samples] == [
        (10 * SECOND, 10),
        (20 * SECOND, 20),
        (60 * SECOND, 60),
    ]


async def test_a_token_is_renewed_when_half_of_its_life_is_over(brief_hub: InProcessHub) -> None:
    hub = brief_hub
    agent = await hub.registered()
    first = agent.token
    await hub.clock.advance(5 * SECOND)
    early = await agent.heartbeat()
    await hub.clock.advance(SECOND)

    late = await agent.heartbeat()

    assert (early.token, early.token_expires_at) == ("", 0)
    assert late.token not in ("", first)
    assert late.token_expires_at == int(hub.clock.now().timestamp()) + 10


async def test_a_renewed_token_outlives_the_one_that_it_replaces(brief_hub: InProcessHub) -> None:
    hub = brief_hub
    agent = await hub.registered()
    first = agent.token
    await hub.clock.advance(6 * SECOND)
    await agent.heartbeat()

    await agent.heartbeat(token=first)
    await hub.clock.advance(5 * SECOND)

    await agent.heartbeat()
    async with refused(grpc.StatusCode.UNAUTHENTICATED):
        await agent.heartbeat(token=first)


async def test_heartbeats_alone_keep_a_session_alive(brief_hub: InProcessHub) -> None:
    hub = brief_hub
    agent = await hub.registered()

    for _ in range(20):
        await hub.clock.advance(3 * SECOND)
        await agent.heartbeat()

    assert hub.clock.now().timestamp() < agent.token_expires_at


async def test_an_agent_of_an_unsupported_version_is_logged(
    hub: InProcessHub, caplog: pytest.LogCaptureFixture
) -> None:
    await hub.agent().register(agent_version="99.0")

    assert "agent.unsupported" in [record.getMessage() for record in caplog.records]


async def test_the_interval_is_the_hubs_and_at_least_a_second() -> None:
    settings = HubSettings(heartbeat_interval=timedelta(milliseconds=200))
    async with InProcessHub(settings=settings) as hub:
        response = await hub.agent().register()

    assert response.heartbeat_interval == 1

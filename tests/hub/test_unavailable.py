"""A hub whose database is away, answers late, or runs a transaction twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from sentinel.core.hub.states import State
from sentinel.ports.hub_store import HubEventType
from sentinel.testing.database import Fault
from sentinel.testing.hub_tables import HubTables
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.in_process import SECOND, InProcessHub, refused

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class FaultyHub(InProcessHub):
    """A hub whose database can be made to fail."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        """By the name of a call, or `*` for all."""
        super().__init__(
            backend=backends.memory(faults=lambda call: self.faults.get(call) or self.faults.get("*"))
        )

    async def notice_outage(self) -> None:
        """Let the hub read the log, and notice that it cannot."""
        for appended in self.backend.memory.tables(HubTables).events.listeners:
            appended.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.built.feed.failing_since is not None


@pytest.fixture
async def faulty() -> AsyncIterator[FaultyHub]:
    async with FaultyHub() as running:
        await running.save_versions("api", 'a "1"')
        yield running
        running.faults.clear()


async def test_register_without_a_database_is_unavailable(faulty: FaultyHub) -> None:
    faulty.faults["*"] = Fault.BEFORE_COMMIT

    async with refused(UNAVAILABLE):
        await faulty.agent().register()


async def test_calls_that_need_the_database_are_unavailable(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    await faulty.assign("api@1")
    faulty.faults["*"] = Fault.BEFORE_COMMIT

    async with refused(UNAVAILABLE):
        await agent.get_config()
    async with refused(UNAVAILABLE):
        await agent.get_config_version("api", 9)
    async with refused(UNAVAILABLE):
        await agent.deregister()
    async with refused(UNAVAILABLE):
        await agent.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED))


async def test_a_call_that_takes_too_long_is_unavailable(hub: InProcessHub) -> None:
    hub.built.calls.call_timeout = timedelta(0)

    async with refused(UNAVAILABLE):
        await hub.agent().register()


async def test_a_session_that_is_not_in_memory_is_unavailable(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    faulty.built.registry.forget(lambda known: True)
    faulty.faults["*"] = Fault.BEFORE_COMMIT

    async with refused(UNAVAILABLE):
        await agent.heartbeat()
    async with refused(UNAVAILABLE):
        await agent.subscribe()


async def test_unavailable_registration_tokens_are_not_wrong_ones(hub: InProcessHub) -> None:
    hub.identities.unavailable_reason = "the database is away"

    async with refused(UNAVAILABLE):
        await hub.agent().register()


async def test_heartbeats_go_on_during_a_short_outage(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    faulty.faults["*"] = Fault.BEFORE_COMMIT
    await faulty.notice_outage()

    await faulty.clock.advance(9 * SECOND)

    await agent.heartbeat()


async def test_heartbeats_in_a_long_outage_are_refused_but_heard(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    faulty.faults["*"] = Fault.BEFORE_COMMIT
    await faulty.notice_outage()

    for _ in range(8):
        await faulty.clock.advance(20 * SECOND)
        async with refused(UNAVAILABLE):
            await agent.heartbeat()
    faulty.faults.clear()
    await faulty.built.feed.read()
    await faulty.sweep()

    assert await faulty.state() is State.ONLINE
    await agent.heartbeat()


async def test_after_an_outage_agents_get_the_whole_threshold_to_come_back(faulty: FaultyHub) -> None:
    await faulty.registered()
    faulty.faults["*"] = Fault.BEFORE_COMMIT
    for _ in range(10):
        await faulty.clock.advance(20 * SECOND)
    faulty.faults.clear()

    await faulty.clock.advance(94 * SECOND)
    before = await faulty.state()
    await faulty.clock.advance(2 * SECOND)

    assert (before, await faulty.state()) == (State.ONLINE, State.OFFLINE)


async def test_a_register_whose_response_was_lost_can_be_repeated(faulty: FaultyHub) -> None:
    faulty.faults["transact"] = Fault.AFTER_COMMIT
    agent = faulty.agent()
    async with refused(UNAVAILABLE):
        await agent.register()
    faulty.faults.clear()

    await agent.register()
    await agent.heartbeat()

    assert (await faulty.instance()).life.session == 2


async def test_transactions_that_run_twice_change_once(faulty: FaultyHub) -> None:
    faulty.faults["transact"] = Fault.LOST_RACE

    agent = await faulty.registered()
    await agent.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED))
    await faulty.assign("api@1")
    await agent.deregister()

    events = await faulty.store.events(0, limit=99)
    assert [event.type for event in events] == [
        HubEventType.INSTANCE_STATE,
        HubEventType.INSTANCE_STATE,
        HubEventType.INSTANCE_CHANGED,
        HubEventType.INSTANCE_STATE,
    ]
    assert (await faulty.instance()).life.session == 1


async def test_reports_survive_a_flush_that_fails(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    agent.metrics = pb.InstanceMetrics(requests_total=1)
    faulty.faults["flush"] = Fault.BEFORE_COMMIT
    for _ in range(3):
        await faulty.clock.advance(10 * SECOND)
        await agent.heartbeat()

    faulty.faults.clear()
    await faulty.built.flusher.flush()

    start = faulty.clock.now() - 60 * SECOND
    assert len(await faulty.store.metrics("edge-1", since=start, limit=9)) == 3
    assert (await faulty.instance()).life.last_seen == faulty.clock.now()


async def test_a_change_that_was_announced_during_an_outage_is_not_lost(faulty: FaultyHub) -> None:
    async with InProcessHub(backend=faulty.backend, clock=faulty.clock) as other:
        agent = await faulty.registered()
        events = await agent.subscribe()
        faulty.faults |= {"events": Fault.BEFORE_COMMIT}
        await other.assign("api@1")
        faulty.faults.clear()

        event = await events.next()

    assert event.config_update.config_version == "api@1"


async def test_a_log_that_has_expired_makes_the_hub_read_again(faulty: FaultyHub) -> None:
    agent = await faulty.registered()
    events = await agent.subscribe()
    async with InProcessHub(backend=faulty.backend, clock=faulty.clock) as other:
        faulty.faults |= {"events": Fault.BEFORE_COMMIT}
        await other.assign("api@1")
        await faulty.clock.advance(SECOND)
        await faulty.store.expire_events(faulty.clock.now(), limit=100)
        faulty.faults.clear()

        event = await events.next()

    assert event.config_update.config_version == "api@1"


async def test_health_says_whether_the_database_is_there(hub: InProcessHub) -> None:
    channel = grpc.aio.insecure_channel(hub.address)
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="sentinel.hub.v1.FleetService")

    before = await stub.Check(request)
    await hub.backend.database.close()
    await hub.clock.advance(SECOND)
    during = await stub.Check(request)
    await hub.backend.database.open()
    await hub.clock.advance(SECOND)
    after = await stub.Check(request)

    statuses = health_pb2.HealthCheckResponse
    assert [each.status for each in (before, during, after)] == [
        statuses.SERVING,
        statuses.NOT_SERVING,
        statuses.SERVING,
    ]
    await channel.close()

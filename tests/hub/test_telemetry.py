"""The hub's metrics: the five of the specification, and those about its own work."""

from __future__ import annotations

import grpc
import pytest

from sentinel.core.hub.states import State
from sentinel.hub.settings import HubSettings
from sentinel.ports.hub_store import HubEvent, HubEventType
from sentinel.ports.webhook_store import Delivery
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.fleet.store_records import MOMENT
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused

DEGRADED = pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED)


@pytest.fixture
async def fleet(hub: InProcessHub) -> InProcessHub:
    """A hub with an instance that is online, one that is degraded, one that is offline, and one that drains."""
    await hub.registered("lost")
    await hub.clock.advance(91 * SECOND)
    await hub.sweep()
    await hub.registered("well")
    await (await hub.registered("ill")).heartbeat(status=DEGRADED)
    await hub.registered("leaving")
    await hub.built.instances.drain(USER, "leaving", "")
    await hub.built.telemetry.refresh()
    return hub


def families(hub: InProcessHub) -> dict[str, str]:
    registry = hub.built.component.part.registry
    assert registry is not None
    return {family.name: family.type for family in registry.collect()}


async def test_the_metrics_of_the_specification_exist_from_the_start(hub: InProcessHub) -> None:
    await hub.built.telemetry.refresh()

    assert families(hub).items() >= {
        ("hub_agents_online", "gauge"),
        ("hub_agents_offline", "gauge"),
        ("hub_deployment_duration_seconds", "histogram"),
        ("hub_deployment_failures", "counter"),
        ("hub_config_sync_lag_seconds", "gauge"),
    }
    assert hub.count("hub_deployment_failures_total") == 0


async def test_online_counts_all_that_are_connected(fleet: InProcessHub) -> None:
    assert fleet.count("hub_agents_online") == 2
    assert fleet.count("hub_agents_offline") == 1


async def test_instances_are_counted_by_state(fleet: InProcessHub) -> None:
    counts = {state: fleet.count("hub_instances", state=state.value) for state in State}

    assert counts == {
        State.UNKNOWN: 0,
        State.ONLINE: 1,
        State.DEPLOYING: 0,
        State.DEGRADED: 1,
        State.OFFLINE: 1,
        State.DRAINING: 1,
        State.REMOVED: 0,
    }


async def test_only_instances_out_of_sync_have_a_lag(hub: InProcessHub) -> None:
    late, prompt = await hub.registered("late"), await hub.registered("prompt")
    for agent in (late, prompt):
        await agent.heartbeat(current_config_hash="ab" * 32)
        await hub.assign("api@1", agent.instance_id)
    await prompt.fetch()
    await hub.clock.advance(40 * SECOND)
    for agent in (late, prompt):
        await agent.heartbeat()
    await hub.built.flusher.flush()

    await hub.built.telemetry.refresh()

    assert lags(hub) == {"late": 40.0}
    await late.fetch()
    await late.heartbeat()
    await hub.built.flusher.flush()
    await hub.built.telemetry.refresh()
    assert lags(hub) == {}


def lags(hub: InProcessHub) -> dict[str, float]:
    registry = hub.built.component.part.registry
    assert registry is not None
    return {
        sample.labels["instance"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "hub_config_sync_lag_seconds"
    }


async def test_heartbeats_and_calls_are_counted_by_status(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await agent.heartbeat()
    await agent.heartbeat()
    async with refused(grpc.StatusCode.UNAUTHENTICATED):
        await agent.heartbeat(token="wrong")

    assert hub.count("hub_heartbeats_total") == 2
    assert hub.count("hub_grpc_calls_total", method="Heartbeat", status="OK") == 2
    assert hub.count("hub_grpc_calls_total", method="Heartbeat", status="UNAUTHENTICATED") == 1
    assert hub.count("hub_grpc_call_duration_seconds_count", method="Heartbeat") == 3


async def test_streams_and_their_events_are_counted(hub: InProcessHub) -> None:
    agent = await hub.registered()
    events = await agent.subscribe()
    await hub.assign("api@1")
    await events.next()
    await hub.clock.advance(30 * SECOND)
    await events.next()
    open_streams = hub.count("hub_streams")

    await hub.registered()
    await events.ended()

    assert open_streams == 1
    assert hub.count("hub_streams") == 0
    assert hub.count("hub_stream_events_total", type="CONFIG_UPDATE") == 1
    assert hub.count("hub_stream_events_total", type="PING") == 1


async def test_expected_agents_is_exported_only_if_it_is_set(hub: InProcessHub) -> None:
    async with InProcessHub(settings=HubSettings(expected_agents=7)) as expecting:
        assert expecting.count("hub_agents_expected") == 7

    assert "hub_agents_expected" not in families(hub)


async def test_changes_of_state_are_logged_with_their_cause(
    hub: InProcessHub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sentinel")
    await hub.registered()
    await hub.clock.advance(91 * SECOND)
    await hub.sweep()

    lines = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "instance.state"]
    assert [(each["instance"], each["before"], each["after"], each["trigger"]) for each in lines] == [
        ("edge-1", "unknown", "online", "registered"),
        ("edge-1", "online", "offline", "no heartbeat"),
    ]


async def test_an_event_that_a_webhook_refused_is_logged_by_its_number(
    hub: InProcessHub, caplog: pytest.LogCaptureFixture
) -> None:
    event = HubEvent(number=7, time=MOMENT, type=HubEventType.CONFIG_VERSION, subject="api@1")
    delivery = Delivery(webhook="hooks.example-1", event=event, next_time=MOMENT, attempts=1, error="no")

    hub.built.telemetry.webhook_failed("hooks.example-1", delivery)

    [line] = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "webhook.failed"]
    assert (line["number"], line["type"], line["error"]) == (7, "config.version", "no")
    assert "event" not in line, "the log has its own"

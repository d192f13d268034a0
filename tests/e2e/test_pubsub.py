"""`sentinel run` as a process, with the Pub/Sub emulator and a fake API."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support.brokers.pubsub import PROJECT, emulator_host, open_inbox, private_emulator
from tests.support.brokers.rabbitmq import unique
from tests.support.fleet.fake_api import FleetServer, make_resource
from tests.support.processes.service import SentinelProcess

DUE = 3000


def settings(server: FleetServer) -> dict[str, object]:
    return {
        "resource_type": "clusters",
        "poll_interval": "500ms",
        "max_age_not_ready": "1h",
        "hyperfleet_api": {"endpoint": server.url},
        "message_data": {
            "id": ".id",
            "name": "{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.name}}{{end}}",
        },
    }


def broker(host: str, topic: str, **more: str) -> dict[str, str]:
    return {
        "BROKER_TYPE": "gcp-pubsub",
        "BROKER_PROJECT_ID": PROJECT,
        "BROKER_TOPIC": topic,
        "PUBSUB_EMULATOR_HOST": host,
        **more,
    }


def published_resources(service: SentinelProcess) -> set[str]:
    return {line["resource_id"] for line in service.lines if line.get("event") == "event.published"}


async def test_a_due_resource_gets_an_event_with_its_attributes(server: FleetServer, tmp_path: Path) -> None:
    server.put(make_resource("cls-1", observed_generation=0))
    async with open_inbox(emulator_host()) as inbox:
        environ = broker(emulator_host(), inbox.topic)
        async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
            (message,) = await inbox.receive(1)
            await service.until_event("event.published")
            published = await service.metric("events_published_total")
            code = await service.stop()

    event = msgspec.json.decode(message.data)
    assert event["data"] == {"id": "cls-1", "name": "cls-1"}
    assert message.attributes["ce-id"] == event["id"]
    assert message.attributes["ce-subject"] == "cls-1"
    assert message.attributes["content-type"] == "application/cloudevents+json"
    assert (published, code) == (1, 0)


async def test_a_missing_topic_is_reported_at_startup(server: FleetServer, tmp_path: Path) -> None:
    topic = unique("topic")

    async with SentinelProcess(tmp_path, settings(server), environ=broker(emulator_host(), topic)) as service:
        code = await service.exit_code()

    assert code == 2
    assert topic in service.stderr.decode()


async def test_an_emulator_killed_in_mid_cycle_loses_no_resource(server: FleetServer, tmp_path: Path) -> None:
    topic = unique("topic")
    server.put(*(make_resource(f"cls-{n}", observed_generation=0) for n in range(DUE)))
    with private_emulator() as emulator:
        environ = broker(emulator.host, topic, BROKER_CREATE_TOPIC="true")
        async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
            await service.until_event("event.published")
            await emulator.kill()
            await service.until_event("event.failed")
            down, _ = await service.readiness()
            alive, _ = await service.liveness()
            published_before = published_resources(service)
            await emulator.start()
            await service.until(lambda line: len(published_resources(service)) == DUE, timeout=60)
            await service.until_event("cycle.done", since=len(service.lines))
            up, _ = await service.readiness()
            errors = await service.metric("broker_errors_total", broker_type="gcp-pubsub")
            async with open_inbox(emulator.host, topic=topic, is_created=False) as inbox:
                await inbox.subscribe()
                server.change_spec("cls-7")
                (message,) = await inbox.receive(1)

    assert 0 < len(published_before) < DUE
    assert (down, alive, up) == (503, 200, 200)
    assert errors >= 1
    assert message.attributes["ce-subject"] == "cls-7"

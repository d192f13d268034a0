"""`sentinel run` on the stream of a real API process: at once, and again after the API was killed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.brokers.rabbitmq import Inbox
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess, SentinelProcess
from tools.services.server import free_port

KINDS = ({"plural": "clusters", "kind": "Cluster", "required_adapters": ["validation"]},)


class Deployment:
    """An API on a fixed port, which can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def api(self) -> ApiProcess:
        return ApiProcess(
            f"sqlite:///{self._directory}/fleet.db",
            kinds=KINDS,
            directory=self._directory,
            listen=f"127.0.0.1:{self._port}",
        )

    @asynccontextmanager
    async def streaming(self, broker: Mapping[str, str]) -> AsyncIterator[SentinelProcess]:
        """A pulse that follows the stream."""
        async with self.pulse(broker) as pulse:
            await pulse.until_event("stream.connected", resumed=False)
            yield pulse

    def pulse(self, broker: Mapping[str, str], **api: object) -> SentinelProcess:
        """A pulse that polls once an hour, so that what is published in a test comes from the stream."""
        config = {
            "resource_type": "clusters",
            "poll_interval": "1h",
            "hyperfleet_api": {"endpoint": self.url, **api},
        }
        return SentinelProcess(self._directory, config, environ=broker)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


@pytest.fixture
async def api(deployment: Deployment) -> AsyncIterator[ApiProcess]:
    async with deployment.api() as running:
        yield running


@pytest.fixture
async def fleet(api: ApiProcess) -> AsyncIterator[FleetHttp]:
    async with FleetHttp(await api.url()) as client:
        yield client


async def subjects(inbox: Inbox, count: int) -> list[str]:
    return sorted([event["subject"] for event in await inbox.events(count)])


async def test_a_changed_spec_is_published_before_the_next_poll(
    deployment: Deployment, fleet: FleetHttp, broker: dict[str, str], inbox: Inbox
) -> None:
    one = await fleet.create("one")
    async with deployment.streaming(broker) as pulse:
        first = await subjects(inbox, 1)
        await fleet.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 2}})
        changed = await subjects(inbox, 1)
        two = await fleet.create("two")
        created = await subjects(inbox, 1)
        connected = await pulse.metric("stream_connected")
        items = await pulse.metric("stream_items_total", type="changed")

    assert first == changed == [one["id"]]
    assert created == [two["id"]]
    assert (connected, items) == (1, 3)


async def test_the_stream_is_resumed_after_the_api_was_killed(
    deployment: Deployment, api: ApiProcess, fleet: FleetHttp, broker: dict[str, str], inbox: Inbox
) -> None:
    one = await fleet.create("one")
    async with deployment.streaming(broker) as pulse:
        await fleet.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 1}})
        await subjects(inbox, 2)  # the second one came from the stream, which is in sync now
        await api.stop(signal.SIGKILL)
        await pulse.until_event("stream.lost")
        ready = (await pulse.readiness())[0]
        async with deployment.api() as restarted:
            await restarted.url()
            await pulse.until_event("stream.connected", resumed=True)
            async with FleetHttp(deployment.url) as again:
                await again.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 2}})
            changed = await subjects(inbox, 1)

    assert ready == 200
    assert changed == [one["id"]]


async def test_a_pulse_that_may_not_watch_only_polls(
    deployment: Deployment, fleet: FleetHttp, broker: dict[str, str], inbox: Inbox
) -> None:
    one = await fleet.create("one")
    async with deployment.pulse(broker, watch="off") as pulse:
        await pulse.until_event("cycle.done")
        await subjects(inbox, 1)
        await fleet.call("PATCH", f"clusters/{one['id']}", {"spec": {"replicas": 2}})
        items = await pulse.metric("stream_items_total")

    assert items == 0
    assert await inbox.is_empty()

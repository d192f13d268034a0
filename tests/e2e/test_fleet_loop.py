"""`sentinel run` and `sentinel api` as processes, with a real RabbitMQ. The tests send the reports of adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.brokers.rabbitmq import Inbox
from tests.support.fleet.concurrent_clients import KINDS, REQUIRED
from tests.support.fleet.http_client import FleetHttp
from tests.support.http.intercepting_proxy import RecordingProxy
from tests.support.processes.service import ApiProcess, Line, SentinelProcess

QUIET_CYCLES = 4
"""How many polls without an event count as silence."""


class FleetLoop(msgspec.Struct, frozen=True):
    """Both processes and their clients."""

    fleet: FleetHttp
    pulse: SentinelProcess
    proxy: RecordingProxy
    """Between the pulse and the API."""
    inbox: Inbox

    async def cycles(self, count: int) -> list[Line]:
        """Wait for the next `count` polls and return their log lines."""
        return [await self.pulse.until_event("cycle.done", since=len(self.pulse.lines)) for _ in range(count)]

    async def is_silent(self) -> bool:
        """Return whether the next polls publish nothing."""
        await self.cycles(1)
        cycles = await self.cycles(QUIET_CYCLES)
        return all(cycle["published"] == 0 for cycle in cycles) and await self.inbox.is_empty()

    async def next_event(self) -> tuple[dict[str, Any], str]:
        """Return the next event, and its reason from the log."""
        (event,) = await self.inbox.events(1)
        line = await self.pulse.until_event("event.published", event_id=event["id"])
        return event, str(line["reason"])


@pytest.fixture
def max_age_not_ready() -> str:
    return "10m"


@pytest.fixture
async def loop(
    tmp_path: Path, inbox: Inbox, broker: dict[str, str], max_age_not_ready: str
) -> AsyncIterator[FleetLoop]:
    async with (
        ApiProcess(f"sqlite:///{tmp_path / 'fleet.db'}", kinds=KINDS, directory=tmp_path) as api,
        RecordingProxy(await api.url()) as proxy,
        FleetHttp(await api.url()) as fleet,
        SentinelProcess(
            tmp_path,
            {
                "resource_type": "clusters",
                "poll_interval": "100ms",
                "max_age_not_ready": max_age_not_ready,
                "max_age_ready": "30m",
                "hyperfleet_api": {"endpoint": proxy.url, "timeout": "5s", "page_size": 2},
                "message_data": {"id": ".id", "generation": ".generation", "region": ".metadata.labels.region"},
            },
            environ=broker,
        ) as pulse,
    ):
        yield FleetLoop(fleet, pulse, proxy, inbox)
        assert await pulse.stop() == 0
        assert await api.stop() == 0
        assert [line for line in api.lines if line.get("status", 0) >= 400] == []


async def test_events_stop_after_the_reports_and_start_for_a_new_spec(loop: FleetLoop) -> None:
    created = await loop.fleet.create("one", spec={"replicas": 1}, labels={"region": "us-east"})
    path = f"clusters/{created['id']}"

    first, first_reason = await loop.next_event()
    await loop.fleet.report(path, *REQUIRED)
    is_silent_when_ready = await loop.is_silent()
    await loop.fleet.call("PATCH", path, {"spec": {"replicas": 2}})
    second, second_reason = await loop.next_event()
    is_silent_when_paced = await loop.is_silent()

    assert first["data"] == {"id": created["id"], "generation": "1", "region": "us-east"}
    assert first_reason == "generation changed - new spec to reconcile"
    assert is_silent_when_ready
    assert second["data"]["generation"] == "2"
    assert second_reason == "generation changed - new spec to reconcile"
    assert is_silent_when_paced, "a repeated event must wait for its max age"


@pytest.mark.parametrize("max_age_not_ready", ["300ms"])
async def test_a_resource_that_is_not_ready_gets_an_event_every_max_age(loop: FleetLoop) -> None:
    await loop.fleet.create("one")

    events = await loop.inbox.events(3)

    assert len({event["id"] for event in events}) == 3
    assert {event["data"]["generation"] for event in events} == {"1"}


async def test_a_paused_resource_gets_no_event_until_it_is_resumed(loop: FleetLoop) -> None:
    path = f"clusters/{(await loop.fleet.create('one'))['id']}"
    await loop.next_event()

    paused = await loop.fleet.call("POST", f"{path}/pause")
    await loop.fleet.call("PATCH", path, {"spec": {"replicas": 2}})
    is_silent_while_paused = await loop.is_silent()
    skipped = await loop.pulse.metric("decisions_total", decision="skip", reason="paused")
    resumed = await loop.fleet.call("POST", f"{path}/resume")
    event, reason = await loop.next_event()

    assert (paused.status, resumed.status) == (202, 202)
    assert is_silent_while_paused
    assert skipped >= QUIET_CYCLES
    assert event["data"]["generation"] == "2"
    assert reason == "generation changed - new spec to reconcile"


async def test_a_requested_pulse_causes_one_event_at_once(loop: FleetLoop) -> None:
    path = f"clusters/{(await loop.fleet.create('one'))['id']}"
    await loop.next_event()

    requested = await loop.fleet.call("POST", f"{path}/pulse")
    await loop.next_event()
    is_silent_while_not_ready = await loop.is_silent()
    await loop.fleet.report(path, *REQUIRED)
    await loop.is_silent()
    await loop.fleet.call("POST", f"{path}/pulse")
    _, reason = await loop.next_event()
    is_silent_when_ready = await loop.is_silent()

    assert requested.status == 202
    assert reason == "pulse requested"
    assert is_silent_while_not_ready
    assert is_silent_when_ready


async def test_the_pulse_follows_the_cursor_and_requests_the_fields_it_reads(loop: FleetLoop) -> None:
    for number in range(5):
        await loop.fleet.create(f"cluster-{number}", spec={"padding": "x" * 1000})
    events = await loop.inbox.events(5)
    await loop.cycles(2)
    first, *following = loop.proxy.queries

    assert len({event["subject"] for event in events}) == 5
    assert "after" not in first
    assert "fields" not in first
    walks = [query for query in following if "after" in query]
    assert len(walks) >= 2
    assert all("page" not in query for query in walks)
    fields = {name for query in walks for name in query["fields"].split(",")}
    assert {"id", "generation", "status.observed_generation", "metadata.labels.region"} <= fields
    assert not any(name == "spec" or name.startswith("spec.") for name in fields)

"""The pulse and the fleet API together, as processes, with a real RabbitMQ; the adapters are played by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.brokers.rabbitmq import Inbox
from tests.support.fleet.concurrent_clients import KINDS, REQUIRED
from tests.support.fleet.http_client import FleetHttp
from tests.support.http.intercepting_proxy import RecordingProxy
from tests.support.processes.service import ApiProcess, Line, SentinelProcess

ENOUGH_CYCLES = 4
"""How many polls without an event make silence."""


class Loop(msgspec.Struct, frozen=True):
    """Both services, and those who use them."""

    fleet: FleetHttp
    pulse: SentinelProcess
    way: RecordingProxy
    """Between the two."""

    async def cycles(self, count: int = ENOUGH_CYCLES) -> list[Line]:
        """So many polls from now on."""
        return [await self.pulse.until_event("cycle.done", since=len(self.pulse.lines)) for _ in range(count)]

    async def is_silent(self, inbox: Inbox) -> bool:
        """Whether polls go by without an event."""
        await self.cycles(1)
        seen = await self.cycles()
        return all(cycle["published"] == 0 for cycle in seen) and await inbox.is_empty()


@asynccontextmanager
async def running(tmp_path: Path, inbox: Inbox, **settings: object) -> AsyncIterator[Loop]:
    async with (
        ApiProcess(f"sqlite:///{tmp_path / 'fleet.db'}", kinds=KINDS, directory=tmp_path) as api,
        RecordingProxy(await api.url()) as way,
        FleetHttp(await api.url()) as fleet,
        SentinelProcess(
            tmp_path,
            {
                "resource_type": "clusters",
                "poll_interval": "100ms",
                "max_age_not_ready": "10m",
                "max_age_ready": "30m",
                "hyperfleet_api": {"endpoint": way.url, "timeout": "5s", "page_size": 2},
                "message_data": {"id": ".id", "generation": ".generation", "region": ".metadata.labels.region"},
                **settings,
            },
            environ={"BROKER_TYPE": "rabbitmq", "BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange},
        ) as pulse,
    ):
        yield Loop(fleet, pulse, way)
        assert await pulse.stop() == 0
        assert await api.stop() == 0
        assert [line for line in api.lines if line.get("status", 0) >= 400] == []


async def next_event(loop: Loop, inbox: Inbox) -> tuple[dict[str, Any], str]:
    """The next event, and the reason that the log gives for it."""
    (event,) = await inbox.events(1)
    lines = [line for line in loop.pulse.lines if line.get("event_id") == event["id"]]
    line = lines[0] if lines else await loop.pulse.until_event("event.published", event_id=event["id"])
    return event, str(line["reason"])


async def test_events_stop_after_the_reports_and_start_for_a_new_spec(tmp_path: Path, inbox: Inbox) -> None:
    async with running(tmp_path, inbox) as loop:
        created = await loop.fleet.create("one", spec={"replicas": 1}, labels={"region": "us-east"})
        path = f"clusters/{created['id']}"

        first, first_reason = await next_event(loop, inbox)
        await loop.fleet.report(path, *REQUIRED)
        is_silent_when_ready = await loop.is_silent(inbox)
        await loop.fleet.call("PATCH", path, {"spec": {"replicas": 2}})
        second, second_reason = await next_event(loop, inbox)
        is_silent_when_paced = await loop.is_silent(inbox)

    assert first["data"] == {"id": created["id"], "generation": "1", "region": "us-east"}
    assert first_reason == "generation changed - new spec to reconcile"
    assert is_silent_when_ready
    assert second["data"]["generation"] == "2"
    assert second_reason == "generation changed - new spec to reconcile"
    assert is_silent_when_paced, "nobody has reported, but it was said a moment ago"


async def test_a_resource_that_is_not_ready_gets_an_event_every_max_age(tmp_path: Path, inbox: Inbox) -> None:
    async with running(tmp_path, inbox, max_age_not_ready="300ms") as loop:
        await loop.fleet.create("one")

        events = await inbox.events(3)

    assert len({event["id"] for event in events}) == 3
    assert {event["data"]["generation"] for event in events} == {"1"}


async def test_a_paused_resource_gets_no_event_until_it_is_resumed(tmp_path: Path, inbox: Inbox) -> None:
    async with running(tmp_path, inbox) as loop:
        path = f"clusters/{(await loop.fleet.create('one'))['id']}"
        await next_event(loop, inbox)

        paused = await loop.fleet.call("POST", f"{path}/pause")
        await loop.fleet.call("PATCH", path, {"spec": {"replicas": 2}})
        is_silent_while_paused = await loop.is_silent(inbox)
        decided = await loop.pulse.metric("decisions_total", decision="skip", reason="paused")
        resumed = await loop.fleet.call("POST", f"{path}/resume")
        event, reason = await next_event(loop, inbox)

    assert (paused.status, resumed.status) == (202, 202)
    assert is_silent_while_paused
    assert decided >= ENOUGH_CYCLES
    assert event["data"]["generation"] == "2"
    assert reason == "generation changed - new spec to reconcile"


async def test_a_requested_pulse_causes_one_event_at_once(tmp_path: Path, inbox: Inbox) -> None:
    async with running(tmp_path, inbox) as loop:
        path = f"clusters/{(await loop.fleet.create('one'))['id']}"
        await next_event(loop, inbox)

        asked = await loop.fleet.call("POST", f"{path}/pulse")
        await next_event(loop, inbox)
        is_silent_while_not_ready = await loop.is_silent(inbox)
        await loop.fleet.report(path, *REQUIRED)
        await loop.is_silent(inbox)
        await loop.fleet.call("POST", f"{path}/pulse")
        _, reason = await next_event(loop, inbox)
        is_silent_when_ready = await loop.is_silent(inbox)

    assert asked.status == 202
    assert reason == "pulse requested"
    assert is_silent_while_not_ready
    assert is_silent_when_ready


async def test_the_pulse_follows_the_cursor_and_requests_the_fields_it_reads(tmp_path: Path, inbox: Inbox) -> None:
    async with running(tmp_path, inbox) as loop:
        for number in range(5):
            await loop.fleet.create(f"cluster-{number}", spec={"padding": "x" * 1000})
        events = await inbox.events(5)
        await loop.cycles(2)
        first, following = loop.way.queries[0], loop.way.queries[1:]

    assert len({event["subject"] for event in events}) == 5
    assert "after" not in first
    assert "fields" not in first
    walks = [query for query in following if "after" in query]
    assert len(walks) >= 2
    assert all("page" not in query for query in walks)
    asked = {name for query in walks for name in query["fields"].split(",")}
    assert {"id", "generation", "status.observed_generation", "metadata.labels.region"} <= asked
    assert not any(name == "spec" or name.startswith("spec.") for name in asked)

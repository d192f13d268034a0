"""From an adapter's settings to its part."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.adapter import Adapter, Context, Done, Outcome, Resource
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli.wiring.adapter import build_adapter, build_reporting
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.subscription import Message
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.reporting import FakeReporting
from tests.support.http.scripted_server import ScriptedServer, problem

EVENT = {"id": "event", "type": "com.redhat.hyperfleet.cluster.reconcile", "subject": "c1"}


def test_within_its_drain_it_says_what_it_has_cut_off() -> None:
    adapter = Adapter("dns")
    begun = asyncio.Event()

    @adapter.task(kinds=["Cluster"])
    async def never(resource: Resource, context: Context) -> Outcome:
        begun.set()
        await asyncio.Event().wait()
        return Done()

    async def scenario() -> list[str]:
        clock, broker, stopping = SimulatedClock(), MemoryBroker(), Stopping()
        api = FakeReporting(clock=clock)
        api.put("c1")
        drain = timedelta(seconds=3)
        part = build_adapter(
            AdapterSettings(task="module:dns", hyperfleet_api=ApiSettings(endpoint="http://127.0.0.1:1")),
            adapter=adapter,
            subscriber=broker.subscribe("dns"),
            reporting=api,
            clock=clock,
            redact=str,
            drain=drain,
        )
        await broker.publish(Message(b"{}", "application/json", EVENT))
        running = asyncio.create_task(part.loops[0](stopping))
        await begun.wait()

        stopping.request()
        await asyncio.wait_for(running, drain.total_seconds())
        assert part.close is not None
        await part.close()

        return [report.conditions[0].reason for report in api.sent]

    assert loop.run(scenario()) == ["Interrupted"]


async def test_the_request_says_what_the_settings_say() -> None:
    heard: list[str] = []
    async with ScriptedServer(lambda asked: problem(404, "HYPERFLEET-NTF-001")) as server:
        api = ApiSettings(endpoint=server.url, gzip=True, token=Secret("t0ken"))
        reporting = build_reporting(api, connections=1, on_token=heard.append)

        await reporting.read(ResourceRef("c1"))
        await reporting.close()

    headers = server.asked[0].headers
    assert headers["User-Agent"].startswith("hyperfleet-adapter/")
    assert headers["Accept-Encoding"] == "gzip"
    assert headers["Authorization"] == "Bearer t0ken"
    assert heard == ["t0ken"]

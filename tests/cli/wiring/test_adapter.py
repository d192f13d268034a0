"""Building an adapter from its settings."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.adapter import Adapter, Context, Done, Outcome, Resource
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli.wiring.adapter import build_adapter, build_adapter_api
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.subscription import Message
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.testing.adapter_api import FakeAdapterApi
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.http.scripted_server import ScriptedServer, problem

EVENT = {"id": "event", "type": "com.redhat.hyperfleet.cluster.reconcile", "subject": "c1"}


@simulated
async def test_an_interrupted_task_is_reported_within_the_drain() -> None:
    adapter = Adapter("dns")
    started = asyncio.Event()

    @adapter.task(kinds=["Cluster"])
    async def never(resource: Resource, context: Context) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return Done()

    clock, broker, stopping = SimulatedClock(), MemoryBroker(), Stopping()
    api = FakeAdapterApi(clock=clock)
    api.put("c1")
    drain = timedelta(seconds=3)
    part = build_adapter(
        AdapterSettings(task="module:dns", hyperfleet_api=ApiSettings(endpoint="http://127.0.0.1:1")),
        adapter=adapter,
        subscriber=broker.subscribe("dns"),
        api=api,
        clock=clock,
        redact=str,
        drain=drain,
    )
    await broker.publish(Message(b"{}", "application/json", EVENT))
    running = asyncio.create_task(part.loops[0](stopping))
    await started.wait()

    stopping.request()
    await asyncio.wait_for(running, drain.total_seconds())
    assert part.close is not None
    await part.close()

    assert [report.conditions[0].reason for report in api.sent] == ["Interrupted"]


async def test_requests_follow_the_settings() -> None:
    tokens: list[str] = []
    async with ScriptedServer(lambda request: problem(404, "HYPERFLEET-NTF-001")) as server:
        settings = ApiSettings(endpoint=server.url, gzip=True, token=Secret("t0ken"))
        api = build_adapter_api(settings, connections=1, on_token=tokens.append)

        await api.get(ResourceRef("c1"))
        await api.close()

    headers = server.requests[0].headers
    assert headers["User-Agent"].startswith("hyperfleet-adapter/")
    assert headers["Accept-Encoding"] == "gzip"
    assert headers["Authorization"] == "Bearer t0ken"
    assert tokens == ["t0ken"]

"""From an adapter's settings to its part."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.adapter import Adapter, Context, Done, Outcome, Resource
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli.build_adapter import build_adapter
from sentinel.drivers.memory import MemoryBroker
from sentinel.ports.subscription import Message
from sentinel.runtime.settings import ApiSettings
from sentinel.runtime.stopping import Stopping
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.reporting import FakeReporting

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
        await broker.place(Message(b"{}", "application/json", EVENT))
        running = asyncio.create_task(part.loops[0](stopping))
        await begun.wait()

        stopping.request()
        await asyncio.wait_for(running, drain.total_seconds())
        assert part.close is not None
        await part.close()

        return [report.conditions[0].reason for report in api.sent]

    assert loop.run(scenario()) == ["Interrupted"]

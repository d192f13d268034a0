"""The load of the demo, against a real server."""

from __future__ import annotations

import asyncio

from sentinel.cli.up.instances.load import INTERVAL, UNREACHABLE, LoadGenerator
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import ManualClock
from tests.support.http.scripted_server import ScriptedResponse, ScriptedServer
from tools.services.server import free_port


def port_of(server: ScriptedServer) -> int:
    return int(server.url.rpartition(":")[2])


async def test_each_proxy_gets_its_share_and_failures_are_counted() -> None:
    clock, stopping = ManualClock(), Stopping()
    async with (
        ScriptedServer(lambda request: ScriptedResponse(200, b"fine")) as good,
        ScriptedServer(lambda request: ScriptedResponse(500, b"broken")) as bad,
    ):
        load = LoadGenerator([port_of(good), port_of(bad), free_port()], clock=clock)
        task = asyncio.create_task(load.run(stopping))
        for _ in range(6):
            await asyncio.wait_for(clock.until_asleep(), 60)
            await clock.advance(INTERVAL / 3)
        await asyncio.wait_for(clock.until_asleep(), 60)
        stopping.request()
        await asyncio.wait_for(task, 60)

    assert load.counts == {"2": 3, "5": 2, UNREACHABLE: 2}

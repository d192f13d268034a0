"""Metrics of the fleet while the database hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sentinel.ports.fleet_store import Population
from sentinel.runtime.probes import gauges
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient


class HangingStore(MemoryFleetStore):
    """A store that never responds."""

    async def populations(self) -> Sequence[Population]:
        await asyncio.Event().wait()
        raise AssertionError


@simulated
async def test_a_scrape_does_not_wait_for_a_hanging_database(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimulatedClock()
    start = clock.now()

    async with ApiClient(backend=backends.memory(fleet=HangingStore)) as fleet:
        await fleet.telemetry.refresh_if_stale()

    assert clock.now() - start == gauges.REFRESH_TIMEOUT
    assert [record.getMessage() for record in caplog.records] == ["metrics.stale"]

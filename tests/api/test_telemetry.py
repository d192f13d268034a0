"""What is measured of the fleet, whatever the database does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sentinel.api import telemetry
from sentinel.ports.fleet_store import Population
from sentinel.testing import loop
from sentinel.testing.fleet_store import MemoryFleetStore
from sentinel.testing.loop import SimulatedClock
from tests.support.databases import backends
from tests.support.fleet.api_client import FleetClient


class Hanging(MemoryFleetStore):
    """Takes a question, and does not answer it."""

    async def populations(self) -> Sequence[Population]:
        await asyncio.Event().wait()
        raise AssertionError


def test_a_scrape_does_not_wait_for_a_hanging_database(caplog: pytest.LogCaptureFixture) -> None:
    async def scrape() -> timedelta:
        clock = SimulatedClock()
        began = clock.now()
        async with FleetClient(backend=backends.memory(fleet=Hanging)) as fleet:
            await fleet.telemetry.refresh_if_stale()
        return clock.now() - began

    waited = loop.run(scrape())

    assert waited == telemetry.REFRESH_TIMEOUT
    assert [record.getMessage() for record in caplog.records] == ["metrics.stale"]

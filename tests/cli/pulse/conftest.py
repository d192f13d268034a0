"""A fleet server for the commands to read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fleet.fake_api import FleetServer


@pytest.fixture
async def server() -> AsyncIterator[FleetServer]:
    """An empty fleet server."""
    async with FleetServer() as server:
        yield server

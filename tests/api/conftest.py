"""The fleet API that the tests call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fleet.api_client import FleetClient


@pytest.fixture
async def fleet() -> AsyncIterator[FleetClient]:
    """An insecure fleet API with an empty store in memory."""
    async with FleetClient() as client:
        yield client

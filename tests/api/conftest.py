"""The fleet API that tests of its behaviour talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fleet.api_client import FleetClient


@pytest.fixture
async def fleet() -> AsyncIterator[FleetClient]:
    """A fleet API on an empty store in memory, where everybody may do everything."""
    async with FleetClient() as client:
        yield client

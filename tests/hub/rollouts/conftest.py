"""Fixtures of the tests of deployments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.hub.deployments import VERSIONS
from tests.support.hub.in_process import InProcessHub


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    """A hub with one configuration, `api`, of three versions that can be deployed."""
    async with InProcessHub() as running:
        await running.save_versions("api", *VERSIONS)
        yield running


@pytest.fixture
async def other(hub: InProcessHub) -> AsyncIterator[InProcessHub]:
    """A second hub on the database of the first."""
    async with InProcessHub(backend=hub.backend, clock=hub.clock) as running:
        yield running

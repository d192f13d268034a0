"""The fleet API for tests of the client's commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.client.serving import ServedFleet


@pytest.fixture
async def fleet() -> AsyncIterator[ServedFleet]:
    """An empty fleet API on loopback, without authentication."""
    async with ServedFleet() as served:
        yield served

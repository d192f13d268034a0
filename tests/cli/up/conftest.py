"""A fleet API for tests of those who use one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.client.serving import ServedFleet


@pytest.fixture
async def fleet() -> AsyncIterator[ServedFleet]:
    """A fleet API on an empty store in memory, listening on loopback, where everybody may do everything."""
    async with ServedFleet() as served:
        yield served

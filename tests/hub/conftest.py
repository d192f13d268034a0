"""Fixtures of the hub's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.hub.in_process import InProcessHub


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    """A hub with one configuration, `api`, of three versions."""
    async with InProcessHub() as running:
        await running.save_versions("api", 'a "1"', 'a "2"', 'a "3"')
        yield running

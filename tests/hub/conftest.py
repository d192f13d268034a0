"""Fixtures of the hub's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.hub.settings import HubSettings
from tests.support.hub.in_process import InProcessHub


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    """A hub with one configuration, `api`, of three versions."""
    async with InProcessHub() as running:
        await running.save_versions("api", 'a "1"', 'a "2"', 'a "3"')
        yield running


@pytest.fixture
async def brief_hub() -> AsyncIterator[InProcessHub]:
    """A hub whose session tokens are valid for ten seconds."""
    async with InProcessHub(settings=HubSettings(session_ttl=timedelta(seconds=10))) as running:
        yield running

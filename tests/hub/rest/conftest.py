"""A hub that tests call over REST."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.hub.rest.rest_hub import RestHub


@pytest.fixture
async def hub() -> AsyncIterator[RestHub]:
    async with RestHub() as hub:
        yield hub

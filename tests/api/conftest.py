"""The fleet API that the tests call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fleet.api_client import ApiClient


@pytest.fixture
async def fleet() -> AsyncIterator[ApiClient]:
    """An insecure fleet API with an empty store in memory."""
    async with ApiClient() as client:
        yield client

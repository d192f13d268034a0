"""The accounts that the tests call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.accounts.accounts_client import AccountsClient


@pytest.fixture
async def accounts() -> AsyncIterator[AccountsClient]:
    """Accounts in memory, without users."""
    async with AccountsClient() as client:
        yield client

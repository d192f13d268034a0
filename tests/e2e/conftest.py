"""What end-to-end tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.inbox import Inbox, open_inbox


@pytest.fixture
async def inbox(rabbitmq_url: str) -> AsyncIterator[Inbox]:
    """A queue in which to read what was published."""
    async with open_inbox(rabbitmq_url) as opened:
        yield opened

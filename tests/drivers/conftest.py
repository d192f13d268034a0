"""What tests of several drivers share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.closing import CloseLater


@pytest.fixture
async def close_later() -> AsyncIterator[CloseLater]:
    async with AsyncExitStack() as stack:
        yield CloseLater(stack)

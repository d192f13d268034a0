"""A hub on loopback that the commands call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.client.serving import UNSET_VARIABLES
from tests.cli.hub.served_hub import ServedHub


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedHub]:
    for name in UNSET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    async with ServedHub() as hub:
        yield hub

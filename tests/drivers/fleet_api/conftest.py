"""A fake fleet server, and readers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader
from tests.drivers.fleet_api.walking import MakeReader, build_reader
from tests.support.closing import CloseLater
from tests.support.fleet.fake_api import FleetServer


@pytest.fixture
async def server() -> AsyncIterator[FleetServer]:
    async with FleetServer() as running:
        yield running


@pytest.fixture
def make_reader(server: FleetServer, close_later: CloseLater) -> MakeReader:
    """Build readers of the server, or of another endpoint."""

    def make(*, endpoint: str = server.url, **changes: Any) -> HttpFleetReader:
        return close_later(build_reader(endpoint, **changes))

    return make

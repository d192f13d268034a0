"""The API and the broker settings that the tests of `sentinel run` share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.brokers.rabbitmq import Inbox
from tests.support.fleet.fake_api import FleetServer


@pytest.fixture
async def server() -> AsyncIterator[FleetServer]:
    """An API without resources that lists numbered pages."""
    async with FleetServer() as server:
        yield server


@pytest.fixture
def broker(inbox: Inbox) -> dict[str, str]:
    """The variables with which a process publishes to the inbox."""
    return {"BROKER_TYPE": "rabbitmq", "BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange}

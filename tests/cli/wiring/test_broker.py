"""Broker settings that reach the drivers for Pub/Sub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sentinel.cli.wiring.broker import build_dead_letters, build_publisher, build_subscriber
from sentinel.core.events import Mode
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType

BROKER = BrokerSettings(
    type=BrokerType.PUBSUB, project_id="p", credentials_json=Secret('{"type": "service_account"}')
)


@pytest.mark.parametrize(
    "use",
    [
        lambda: build_publisher(BROKER, mode=Mode.STRUCTURED).open(),
        lambda: build_subscriber(BROKER, subscription="dns", max_in_flight=1).open(),
        lambda: build_dead_letters(BROKER, subscription="dns").peek(limit=1),
    ],
    ids=["publisher", "subscriber", "dead letters"],
)
async def test_credentials_in_the_settings_are_used(use: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(Misconfigured, match="expected the key of a service account"):
        await use()

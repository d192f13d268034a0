"""Every driver of the subscribe port under its suite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from sentinel import ports
from sentinel.core.events import Event
from sentinel.drivers.memory import MemoryBroker
from sentinel.ports import Outcome
from tests.contract.subscriber import AMPLE, SubscriberContract, SubscriberHarness


class MemoryHarness(SubscriberHarness):
    silence = timedelta(milliseconds=5)

    def __init__(self) -> None:
        self._broker = MemoryBroker()
        self._publisher = self._broker.publisher()

    async def subscribe(self, subscription: str) -> ports.Subscriber:
        return self._broker.subscribe(subscription)

    async def publish(self, events: Sequence[Event]) -> None:
        await self._publisher.open()
        receipt = await self._publisher.publish(events, deadline=AMPLE)
        assert set(receipt.outcomes) == {Outcome.CONFIRMED}


class TestMemorySubscriber(SubscriberContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()

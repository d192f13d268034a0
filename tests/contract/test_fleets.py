"""The fake fleet under its contract; `tests/drivers/fleet_api` runs it on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pytest

from sentinel.core.labels import Selector
from sentinel.ports.fleet import FleetReader
from sentinel.testing.fleet import FakeFleet
from tests.contract.fleet import EVERYTHING, FleetContract, FleetHarness


class FakeHarness(FleetHarness):
    def __init__(self) -> None:
        self._fleet = FakeFleet()

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        self._fleet = FakeFleet(page_size=page_size, selector=selector)
        return self._fleet

    def put(
        self,
        resource_id: str,
        *,
        generation: int = 1,
        observed_generation: int = 0,
        is_ready: bool = False,
        last_updated_time: datetime | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._fleet.put(
            resource_id,
            generation=generation,
            observed_generation=observed_generation,
            is_ready=is_ready,
            last_updated_time=last_updated_time,
            labels=labels,
        )

    def remove(self, resource_id: str) -> None:
        self._fleet.remove(resource_id)

    def put_malformed(self) -> None:
        self._fleet.put_encoded(b'{"kind": "Cluster"}')

    def fail(self, *, after_pages: int = 0) -> None:
        self._fleet.fail(walks=1_000, after_pages=after_pages)

    def heal(self) -> None:
        self._fleet.fail(walks=0)


class TestFakeFleet(FleetContract):
    @pytest.fixture
    def harness(self) -> FakeHarness:
        return FakeHarness()

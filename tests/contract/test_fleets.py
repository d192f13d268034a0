"""The fake fleet under its contract; `tests/drivers/fleet_api` runs it on the driver."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from sentinel.core.labels import Selector
from sentinel.ports.fleet import FleetReader
from sentinel.testing.fleet import FakeFleet
from tests.contract.fleet import EVERYTHING, Cluster, FleetContract, FleetHarness, malformed


class FakeHarness(FleetHarness):
    def __init__(self) -> None:
        self._fleet = FakeFleet()

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        self._fleet = FakeFleet(page_size=page_size, selector=selector)
        return self._fleet

    def put(self, cluster: Cluster) -> None:
        self._fleet.put(**msgspec.structs.asdict(cluster))

    def remove(self, resource_id: str) -> None:
        self._fleet.remove(resource_id)

    def put_malformed(self, resource_id: str | None) -> None:
        self._fleet.put_encoded(msgspec.json.encode(malformed(resource_id)))

    def fail(self, *, after_pages: int = 0, retry_after: timedelta = timedelta(0)) -> None:
        self._fleet.fail(walks=1_000, after_pages=after_pages, retry_after=retry_after)

    def heal(self) -> None:
        self._fleet.fail(walks=0)


class TestFakeFleet(FleetContract):
    @pytest.fixture
    def harness(self) -> FakeHarness:
        return FakeHarness()

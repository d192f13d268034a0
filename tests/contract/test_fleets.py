"""Every implementation of the fetch port under its suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta

import pytest
from tests.contract.fleet import EVERYTHING, FleetContract, FleetHarness
from tests.support.fleet_server import Answer, FleetServer, make_resource

from sentinel import ports
from sentinel.core.listing import Shape
from sentinel.core.selector import Selector, SelectorParam
from sentinel.drivers.fleet_api import FleetApi
from sentinel.runtime.backoff import Backoff
from sentinel.testing.fleet import FakeFleet


class FakeHarness(FleetHarness):
    def __init__(self) -> None:
        self._fleet = FakeFleet()

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> ports.Fleet:
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


class ServerHarness(FleetHarness):
    def __init__(self, server: FleetServer) -> None:
        self._server = server
        self._made: list[FleetApi] = []

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> ports.Fleet:
        fleet = FleetApi(
            endpoint=self._server.url,
            resource_type="clusters",
            selector=selector,
            selector_param=SelectorParam.LABELS,
            page_size=page_size,
            timeout=timedelta(seconds=20),
            retry_for=timedelta(milliseconds=50),
            backoff=Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=20)),
            version="0",
        )
        self._made.append(fleet)
        return fleet

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
        self._server.put(
            make_resource(
                resource_id,
                generation=generation,
                observed_generation=observed_generation,
                phase="Ready" if is_ready else "NotReady",
                last_updated=last_updated_time,
                labels=labels,
            )
        )

    def remove(self, resource_id: str) -> None:
        self._server.remove(resource_id)

    def put_malformed(self) -> None:
        self._server.put({"kind": "Cluster"})

    def fail(self, *, after_pages: int = 0) -> None:
        answered = len(self._server.received)
        self._server.script = lambda request: (
            None if request.number - answered <= after_pages else Answer(status=503)
        )

    def heal(self) -> None:
        self._server.script = None

    async def close(self) -> None:
        for fleet in self._made:
            await fleet.close()


@pytest.mark.parametrize("shape", [Shape.NUMBERED, Shape.CURSOR])
class TestFleetApi(FleetContract):
    @pytest.fixture
    async def harness(self, shape: Shape) -> AsyncIterator[ServerHarness]:
        async with FleetServer(shape=shape) as server:
            harness = ServerHarness(server)
            yield harness
            await harness.close()

"""The contract of `FleetReader`, with the HTTP reader on numbered pages and on cursors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.core.labels import Selector
from sentinel.core.pulse.listing import PageShape
from sentinel.ports.fleet import FleetReader
from tests.contract.fleet import EVERYTHING, Cluster, FleetContract, FleetHarness, malformed
from tests.drivers.fleet_api.walking import TWICE, build_reader
from tests.support.closing import CloseLater
from tests.support.fleet.fake_api import FakeResponse, FleetRequest, FleetServer, make_resource


class ServerHarness(FleetHarness):
    def __init__(self, server: FleetServer, close_later: CloseLater) -> None:
        self._server = server
        self._close_later = close_later

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        return self._close_later(
            build_reader(self._server.url, selector=selector, page_size=page_size, backoff=TWICE)
        )

    def put(self, cluster: Cluster) -> None:
        self._server.put(
            make_resource(
                cluster.resource_id,
                generation=cluster.generation,
                observed_generation=cluster.observed_generation,
                phase="Ready" if cluster.is_ready else "NotReady",
                last_updated=cluster.last_updated_time,
                labels=cluster.labels,
            )
        )

    def remove(self, resource_id: str) -> None:
        self._server.remove(resource_id)

    def put_malformed(self, resource_id: str | None) -> None:
        self._server.put(malformed(resource_id))

    def fail(self, *, after_pages: int = 0, retry_after: timedelta = timedelta(0)) -> None:
        answered = 0
        headers = {"Retry-After": f"{retry_after.total_seconds():.0f}"} if retry_after else {}

        def script(request: FleetRequest) -> FakeResponse | None:
            nonlocal answered
            answered = 1 if request.page == 1 else answered + 1
            return None if answered <= after_pages else FakeResponse(status=503, headers=headers)

        self._server.script = script

    def heal(self) -> None:
        self._server.script = None


class TestHttpFleetReader(FleetContract):
    @pytest.fixture(params=[PageShape.NUMBERED, PageShape.CURSOR])
    async def harness(
        self, request: pytest.FixtureRequest, close_later: CloseLater
    ) -> AsyncIterator[ServerHarness]:
        async with FleetServer(shape=request.param) as server:
            yield ServerHarness(server, close_later)

"""The fetch driver under the suite of its port, against either kind of paged server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta

import pytest

from sentinel.core.labels import Selector, SelectorParam
from sentinel.core.pulse.listing import PageShape
from sentinel.drivers.fleet_api.connection import connect
from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader
from sentinel.ports.fleet import FleetReader
from sentinel.runtime.backoff import Backoff
from tests.contract.fleet import EVERYTHING, FleetContract, FleetHarness
from tests.support.fleet.fake_api import Answer, FleetServer, Received, make_resource

SECOND = timedelta(seconds=1)


class ServerHarness(FleetHarness):
    def __init__(self, server: FleetServer) -> None:
        self.made: list[HttpFleetReader] = []
        self._server = server

    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        api = HttpFleetReader(
            connect(endpoint=self._server.url, user_agent="test", keep_alive=60 * SECOND),
            resource_type="clusters",
            selector=selector,
            selector_param=SelectorParam.LABELS,
            page_size=page_size,
            timeout=5 * SECOND,
            retry_for=5 * SECOND,
            backoff=Backoff(initial=SECOND / 1000, factor=1e9, maximum=3600 * SECOND),
        )
        self.made.append(api)
        return api

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
        answered = 0

        def script(request: Received) -> Answer | None:
            nonlocal answered
            answered = 1 if request.page == 1 else answered + 1
            return None if answered <= after_pages else Answer(status=503)

        self._server.script = script

    def heal(self) -> None:
        self._server.script = None


class TestFleetApi(FleetContract):
    @pytest.fixture(params=[PageShape.NUMBERED, PageShape.CURSOR])
    async def harness(self, request: pytest.FixtureRequest) -> AsyncIterator[ServerHarness]:
        async with FleetServer(shape=request.param) as server:
            harness = ServerHarness(server)
            yield harness
            for api in harness.made:
                await api.close()

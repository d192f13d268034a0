"""The contract of `AdapterApi`, with the shipped fake and with the HTTP driver on the real API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from sentinel.core.json import Json
from sentinel.drivers.fleet_api.adapter_api import HttpAdapterApi
from sentinel.drivers.fleet_api.connection import connect
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.testing.adapter_api import FakeAdapterApi
from sentinel.testing.clock import ManualClock
from sentinel.web.server import Server
from tests.contract.adapter_api import AdapterApiContract, AdapterApiHarness
from tests.support.fleet.api_client import ApiClient


class FakeHarness(AdapterApiHarness):
    def __init__(self) -> None:
        self._clock = ManualClock()
        self.api: FakeAdapterApi = FakeAdapterApi(clock=self._clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def put(self, resource_id: str, spec: Json = None) -> None:
        self.api.put(resource_id, spec=spec)

    async def delete(self, resource_id: str) -> None:
        self.api.delete(resource_id)

    async def remove(self, resource_id: str) -> None:
        self.api.remove(resource_id)

    async def take_down(self) -> None:
        self.api.fail(ApiUnavailable("down"))


class TestFakeAdapterApi(AdapterApiContract):
    @pytest.fixture
    def harness(self) -> FakeHarness:
        return FakeHarness()


class ServerHarness(AdapterApiHarness):
    def __init__(self, fleet: ApiClient, server: Server) -> None:
        self._fleet = fleet
        self._server = server
        client = connect(endpoint=f"http://{server.address}", user_agent="test", keep_alive=timedelta(seconds=30))
        self.api = HttpAdapterApi(client, timeout=timedelta(seconds=10))

    def now(self) -> datetime:
        return self._fleet.clock.now()

    async def put(self, resource_id: str, spec: Json = None) -> None:
        reply = await self._fleet.call("PATCH", f"clusters/{resource_id}", {"spec": spec or {}})
        if reply.status == 404:
            await self._fleet.create(name=resource_id, id=resource_id, spec=spec or {})

    async def delete(self, resource_id: str) -> None:
        assert (await self._fleet.call("DELETE", f"clusters/{resource_id}")).status == 202

    async def remove(self, resource_id: str) -> None:
        path = f"clusters/{resource_id}/force-delete"
        assert (await self._fleet.call("POST", path, {"reason": "a test"})).status == 204

    async def take_down(self) -> None:
        await self._server.close()


class TestHttpAdapterApi(AdapterApiContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[ServerHarness]:
        async with ApiClient() as fleet:
            server = Server(fleet.app, address=Address("127.0.0.1", 0), log=get_logger("test"))
            await server.open()
            harness = ServerHarness(fleet, server)
            try:
                yield harness
            finally:
                await harness.api.close()
                await server.close()

"""Fetching a proxy's metrics."""

from __future__ import annotations

from datetime import timedelta

import pytest
from aiohttp import web

from sentinel.drivers.proxy_metrics import ProxyMetrics
from sentinel.ports.errors import Unavailable
from tests.support.http.loopback import LoopbackServer
from tools.services.server import free_port

TIMEOUT = timedelta(seconds=60)


class MetricsServer(LoopbackServer):
    """A page of metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.accepts = ""

    def make_runner(self) -> web.BaseRunner:
        return web.ServerRunner(web.Server(self._respond))

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.accepts = request.headers["Accept"]
        assert request.path_qs == "/metrics?all=1"
        return web.Response(status=self.status, text="requests 1\n")


async def test_a_page_is_fetched_in_the_plain_format() -> None:
    async with MetricsServer() as server:
        metrics = ProxyMetrics(f"{server.url}/metrics?all=1")

        assert await metrics.fetch(TIMEOUT) == "requests 1\n"
        assert server.accepts.startswith("text/plain")
        await metrics.close()


async def test_an_error_status_is_no_page() -> None:
    async with MetricsServer() as server:
        server.status = 404
        metrics = ProxyMetrics(f"{server.url}/metrics?all=1")

        with pytest.raises(Unavailable, match="responded 404"):
            await metrics.fetch(TIMEOUT)
        await metrics.close()


async def test_a_proxy_that_is_away_is_unavailable() -> None:
    metrics = ProxyMetrics(f"http://127.0.0.1:{free_port()}/metrics")

    with pytest.raises(Unavailable):
        await metrics.fetch(TIMEOUT)
    await metrics.close()

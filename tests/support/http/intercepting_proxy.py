"""HTTP proxies in front of a server that record or intercept requests."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.http.loopback import listen

_REQUEST_HEADERS = ("Content-Type", "Accept", "Authorization", "User-Agent")
_RESPONSE_HEADERS = ("Content-Type", "Discard-Reason")


class Proxy:
    """Forwards requests to another server."""

    def __init__(self, upstream: str) -> None:
        self._upstream = URL(upstream)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self.url = ""

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        """Return a response instead of the server's, or None to forward the request."""
        return None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._runner = web.ServerRunner(web.Server(self._respond))
        self.url = await listen(self._runner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        return self.intercept(request) or await self._forward(request)

    async def _forward(self, request: web.BaseRequest) -> web.Response:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        url = self._upstream.join(request.rel_url)
        body = await request.read()
        async with self._session.request(request.method, url, headers=headers, data=body) as response:
            kept = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
            return web.Response(status=response.status, body=await response.read(), headers=kept)


class RecordingProxy(Proxy):
    """Records the queries of forwarded requests."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.queries: list[dict[str, str]] = []

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        self.queries.append(dict(request.query))
        return None


class RejectingGateway(Proxy):
    """Rejects every write with 400 while `is_rejecting`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.is_rejecting = True

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        if self.is_rejecting and request.method != "GET":
            return web.Response(status=400, text="rejected by the gateway")
        return None

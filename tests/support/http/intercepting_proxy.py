"""HTTP proxies in front of a server that record or intercept requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.http.loopback import LoopbackServer

_REQUEST_HEADERS = ("Content-Type", "Accept", "Authorization", "User-Agent")
_RESPONSE_HEADERS = ("Content-Type", "Discard-Reason")


class InterceptingProxy(LoopbackServer):
    """Forwards requests to another server."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._upstream = URL(upstream)
        self._session: aiohttp.ClientSession | None = None

    def intercept(self, request: web.Request) -> web.Response | None:
        """Return a response instead of the server's, or None to forward the request."""
        return None

    def make_runner(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._respond)
        app.cleanup_ctx.append(self._open_session)
        return web.AppRunner(app, access_log=None)

    async def _open_session(self, app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as self._session:
            yield

    async def _respond(self, request: web.Request) -> web.Response:
        return self.intercept(request) or await self._forward(request)

    async def _forward(self, request: web.Request) -> web.Response:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        url = self._upstream.join(request.rel_url)
        body = await request.read()
        async with self._session.request(request.method, url, headers=headers, data=body) as response:
            kept = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
            return web.Response(status=response.status, body=await response.read(), headers=kept)


class RecordingProxy(InterceptingProxy):
    """Records the queries of forwarded requests."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.queries: list[dict[str, str]] = []

    def intercept(self, request: web.Request) -> web.Response | None:
        self.queries.append(dict(request.query))
        return None


class RejectingGateway(InterceptingProxy):
    """Rejects every write with 400 while `is_rejecting`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.is_rejecting = True

    def intercept(self, request: web.Request) -> web.Response | None:
        if self.is_rejecting and request.method != "GET":
            return web.Response(status=400, text="rejected by the gateway")
        return None

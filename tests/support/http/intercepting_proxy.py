"""A way to a server on which a test sees what is asked, and can come in between."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.http.loopback import listen

_PASSED_ON = ("Content-Type", "Accept", "Authorization", "User-Agent")
_HANDED_BACK = ("Content-Type", "Discard-Reason")


class Proxy:
    """Passes requests on to another server."""

    def __init__(self, upstream: str) -> None:
        self._upstream = URL(upstream)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self.url = ""

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        """An answer in place of the server's; None to pass the request on."""
        return None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._runner = web.ServerRunner(web.Server(self._answer))
        self.url = await listen(self._runner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        return self.intercept(request) or await self._pass_on(request)

    async def _pass_on(self, request: web.BaseRequest) -> web.Response:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = self._upstream.join(request.rel_url)
        async with self._session.request(request.method, url, headers=headers, data=await request.read()) as reply:
            kept = {name: reply.headers[name] for name in _HANDED_BACK if name in reply.headers}
            return web.Response(status=reply.status, body=await reply.read(), headers=kept)


class RecordingProxy(Proxy):
    """Remembers the queries that it has passed on."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.queries: list[dict[str, str]] = []

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        self.queries.append(dict(request.query))
        return None


class Gateway(Proxy):
    """Refuses reports, as a gateway with rules of its own would, until it is told otherwise."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.is_refusing = True

    def intercept(self, request: web.BaseRequest) -> web.Response | None:
        if self.is_refusing and request.method != "GET":
            return web.Response(status=400, text="a rule of the gateway's own")
        return None

"""A way to the API on which reports can be refused, as a gateway with rules of its own would."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

_HEADERS = ("Content-Type", "Discard-Reason")


class Gateway:
    """Passes requests on, reports only while it is told to."""

    def __init__(self, upstream: str) -> None:
        self._upstream = URL(upstream)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self.is_refusing = True
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._runner = web.ServerRunner(web.Server(self._pass_on))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.Response:
        assert self._session is not None
        if self.is_refusing and request.method != "GET":
            return web.Response(status=400, text="a rule of the gateway's own")
        url = self._upstream.join(request.rel_url)
        headers = {"Content-Type": request.content_type}
        async with self._session.request(request.method, url, headers=headers, data=await request.read()) as reply:
            kept = {name: reply.headers[name] for name in _HEADERS if name in reply.headers}
            return web.Response(status=reply.status, body=await reply.read(), headers=kept)

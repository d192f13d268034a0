"""A way to a server on which every request is seen as it was sent."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

_PASSED_ON = ("Content-Type", "Accept", "Authorization", "User-Agent")


class RecordingProxy:
    """Passes requests on to another server, and remembers their queries."""

    def __init__(self, upstream: str) -> None:
        self._upstream = URL(upstream)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self.queries: list[dict[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._runner = web.ServerRunner(web.Server(self._pass_on))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
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
        self.queries.append(dict(request.query))
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = self._upstream.join(request.rel_url)
        async with self._session.request(request.method, url, headers=headers, data=await request.read()) as reply:
            return web.Response(
                status=reply.status,
                body=await reply.read(),
                headers={"Content-Type": reply.headers["Content-Type"]},
            )
